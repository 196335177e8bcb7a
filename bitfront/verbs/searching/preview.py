"""Size of the space, costs, time of one trial, ETA; nothing is started.

With `--rehearse`, the whole search with made-up accuracies."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.search.session.rows import chosen_rows
from bitfront.terminal import tables as terminal
from bitfront.verbs import options as shared
from bitfront.verbs.opening import search_of, waiting_line


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.search_yaml(parser)
    shared.rows(parser)
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="play the whole search with made-up accuracies, in seconds and without "
        "training or data: how many trials will run, what is exhausted, which rows of a "
        "paper stay unanswered",
    )


def action(args: Namespace) -> int:
    return show_preview(args, args.rehearse)


def show_preview(args: Namespace, rehearsed: bool = False) -> int:
    """Print the preview of a search and return the exit code. `run --dry-run` does this too."""
    with waiting_line(args) as line:
        config, space = search_of(args)  # a mistake in the YAML is found before torch is imported
        chosen = None if args.rows is None else chosen_rows(config, args.rows)
        from bitfront.search.session.preview import preview_search  # torch
        from bitfront.terminal.previews import preview_text, rehearsal_progress  # torch

        line.wait("reading the costs" if rehearsed else "timing a few steps of two trials")
        report = preview_search(config, space, timed=not rehearsed, chosen=chosen)
    if rehearsed:
        from bitfront.search.session.rehearsal import counted, rehearse  # torch

        with rehearsal_progress(counted(config).search.trials) as ended:
            report.rehearsal = rehearse(config, space, ended=ended, rows=chosen)
    if args.json:
        terminal.show_json(report.as_json())
    else:
        terminal.show(preview_text(report))
    return 0
