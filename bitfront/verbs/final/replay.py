"""Train a finished trial again and compare."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.search import kept_code
from bitfront.search.ledger.folder import home
from bitfront.search.recipes.replay import find_trial, replay_trial
from bitfront.terminal import tables as terminal
from bitfront.verbs import options as shared
from bitfront.verbs.opening import warn_of_edits


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument(
        "trial", help="its id (5b1ddccb) as tables, pictures and MLflow show it, or SEARCH/ID"
    )
    shared.data_dir(parser)
    shared.trusted(parser, "ledger")
    shared.trust(parser)


def action(args: Namespace) -> int:
    results, entry = find_trial(home(args.home), args.trial)
    kept_code.look(results.folder.path)
    warn_of_edits(entry.spec.model_dump(mode="json"), results.config.name)
    report = replay_trial(results, entry, args.data_dir, note=None if args.json else terminal.show)
    if args.json:
        terminal.show_json(report.as_json())
    else:
        terminal.show(report.text())
    return 0 if report.equal else 1
