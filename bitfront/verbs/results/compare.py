"""Two searches side by side, or one beside the paper's rows."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bitfront.search.ledger.folder import home, list_searches
from bitfront.search.results.comparison import Comparison
from bitfront.search.results.paper import PaperComparison
from bitfront.search.results.published import kept
from bitfront.search.results.results import Results
from bitfront.spaces.ready_made import searches
from bitfront.terminal import tables as terminal
from bitfront.terminal.comparisons import comparison_text
from bitfront.terminal.papers import paper_text, papers_page
from bitfront.terminal.tables import filled
from bitfront.trainables.errors import UserError
from bitfront.verbs import options as shared
from bitfront.verbs.opening import results_of


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("a", nargs="?", help="name of a search")
    parser.add_argument("b", nargs="?", help="name of another one")
    parser.add_argument("--paper", action="store_true", help="the rows the search's YAML carries")
    parser.add_argument(
        "--all",
        action="store_true",
        help="with --paper: a page in Markdown over all searches here that carry rows",
    )
    parser.add_argument(
        "--ready-made",
        action="store_true",
        help="with --all: the rows of ready-made searches too that have not been run",
    )
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="with --paper: write the results that are shown to FOLDER/NAME.json",
    )
    parser.add_argument(
        "--kept",
        metavar="FOLDER",
        help="with --all: of the results kept there, not of the searches here",
    )
    shared.trusted(parser, "ledger")


def action(args: Namespace) -> int:
    if args.all:
        return _all(args)
    if args.ready_made or args.kept:
        raise UserError("--ready-made and --kept go with --paper --all")
    if args.a is None or args.paper == (args.b is not None):
        raise UserError("compare with what? give a second search, or --paper alone")
    first = results_of(args, args.a)
    if args.paper:
        beside = PaperComparison(first)
        report, text = beside.as_json, partial(paper_text, beside)
        _keep(args, [beside])
    else:
        both = Comparison(first, results_of(args, args.b))
        report, text = both.as_json, partial(comparison_text, both)
    if args.json:
        terminal.show_json(report())
    else:
        terminal.show(text())
    return 0


def _all(args: Namespace) -> int:
    """Print the rows of all searches of the home, or of a folder of kept results, that carry some
    and have a trial; with `--ready-made` of those too that have none."""
    if not args.paper or args.a is not None:
        raise UserError("--all goes with --paper alone: bitfront compare --paper --all")
    if args.kept:
        files = sorted(Path(args.kept).glob("*.json"))
        results = _readable({path.stem: partial(kept.read, path) for path in files})
        results = [kept.with_rows_of_today(each) for each in results]
    else:
        folders = list_searches(home(args.home))
        results = _readable({folder.name: partial(Results.of, folder) for folder in folders})
    found = [PaperComparison(r) for r in results if r.config.paper is not None and r.entries]
    if args.ready_made:
        known = {each.ours.config.name for each in found}
        left = {name: path for name, path in searches().items() if name not in known}
        others = _readable({name: partial(kept.not_run, path) for name, path in left.items()})
        found += [PaperComparison(each) for each in others if each.config.paper is not None]
    if not found:
        raise UserError("no search here carries rows of a paper and has been run")
    _keep(args, found)
    found.sort(key=lambda each: (each.paper.citation, not each.ours.entries, each.ours.config.name))
    if args.json:
        terminal.show_json([each.as_json() for each in found])
    else:
        terminal.show(papers_page(found, _command(args)))
    return 0


def _readable(readers: Mapping[str, Callable[[], Results]]) -> list[Results]:
    """What these functions read, with a warning for each search that cannot be read."""
    found = []
    for name, read in readers.items():
        try:
            found.append(read())
        except UserError as error:
            print(filled(f"warning: {name}: {error.message}"), file=sys.stderr)
    return found


def _keep(args: Namespace, found: Sequence[PaperComparison]) -> None:
    for each in found if args.keep else []:
        if each.ours.entries:
            print(f"kept: {kept.write(each.ours, Path(args.keep))}", file=sys.stderr)


def _command(args: Namespace) -> str:
    """What the page says that it was written by."""
    words = ["bitfront compare --paper --all", "--ready-made" if args.ready_made else ""]
    words.append(f"--kept {args.kept}" if args.kept else "")
    return " ".join(word for word in words if word)
