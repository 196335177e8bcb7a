"""Start a search, or continue it when it exists.

What happens then is in `bitfront.verbs.launch` and `bitfront.search.session`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bitfront.search.cluster.ray_client import is_client, run_there
from bitfront.search.config.schema import SearchConfig
from bitfront.search.homes import home_for
from bitfront.search.ledger.folder import LEDGER, SearchFolder
from bitfront.search.results.paper import PaperComparison
from bitfront.search.results.results import Results
from bitfront.search.session.rows import chosen_rows
from bitfront.spaces.space import Space
from bitfront.terminal import tables as terminal
from bitfront.terminal.own_data import tell
from bitfront.terminal.papers import paper_text
from bitfront.terminal.status_line import StatusLine
from bitfront.trainables.errors import UserError
from bitfront.verbs import options as shared
from bitfront.verbs.opening import results_of, search_of, status_line
from bitfront.verbs.searching.preview import show_preview


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.search_yaml(parser)
    shared.running(parser)
    parser.add_argument("--ledger", metavar="URL", help="SQLAlchemy URL (BITFRONT_LEDGER)")
    parser.add_argument(
        "--warm-start",
        metavar="NAME",
        help="begin with the front of another search, and learn from all its trials",
    )
    shared.rows(parser)
    parser.add_argument("--dry-run", action="store_true", help="the same as preview")


def action(args: Namespace) -> int:
    if is_client(args.address):
        return run_there(args)
    if args.dry_run:
        return show_preview(args)
    with status_line(args) as line:
        config, space = search_of(args)
        warm = results_of(args, args.warm_start) if args.warm_start else None
        root = home_for(config.name, args.home)
        if warm is not None and not warm.front:
            raise UserError(f"search '{warm.config.name}' has no front to start from")
        if warm is not None and warm.folder.path == root / config.name:
            raise UserError(f"--warm-start {args.warm_start}: a search cannot start from itself")
        ledger = args.ledger or os.environ.get(LEDGER) or None
        begin = partial(started, config, space, root, line, args.address, args.quiet, ledger)
        code, folder = begin(warm, args.rows)
    if args.rows and code == 0 and not args.quiet:
        labels = chosen_rows(config, args.rows)
        terminal.show("\n" + paper_text(PaperComparison(Results.of(folder)), labels))
    return code


def started(
    config: SearchConfig,
    space: Space,
    root: Path,
    line: StatusLine,
    address: str | None,
    quiet: bool,
    ledger: str | None,
    warm: Results | None = None,
    rows: Sequence[str] | None = None,
) -> tuple[int, SearchFolder]:
    """Check what the first trial needs, run the trials that are left of a search, or only those of
    the rows of a paper with these labels, and return the exit code and the folder of the search."""
    # A mistake so far is found before torch is imported.
    chosen = None if rows is None else chosen_rows(config, rows)
    from bitfront.search.session.preparation import check_start, fetched, prepare  # torch
    from bitfront.verbs.launch import launch

    config, space = fetched(config, space, root)
    check_start(config, space, SearchFolder(root / config.name), address, line)
    tell(config.task, line.say)
    folder = prepare(config, root, ledger)
    code = launch(config, space, folder, address, quiet, warm, line, False, chosen)
    return code, folder
