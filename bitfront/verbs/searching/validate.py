"""Check a search YAML; nothing is started."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from bitfront.terminal import tables as terminal
from bitfront.terminal.own_data import tell
from bitfront.terminal.tables import filled
from bitfront.verbs import options as shared
from bitfront.verbs.opening import search_of, waiting_line


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.search_yaml(parser)
    parser.set_defaults(search=None)


def action(args: Namespace) -> int:
    with waiting_line(args):
        config, space = search_of(args)
        from bitfront.search.config.checks.activations import unresponsive

        unsure = unresponsive(space, read=False)
    if unsure is not None:
        print(filled(f"warning: {unsure}"), file=sys.stderr, flush=True)
    if not args.json:
        tell(config.task, terminal.show)
    if args.json:
        terminal.show_json({"valid": True, "config": config.open_data()})
    elif args.search is None:
        terminal.say(
            f"no file was given, so the ready-made {shared.QUICKSTART} was checked: valid, "
            f"search '{config.name}'"
        )
    else:
        terminal.say(f"{args.search}: valid, search '{config.name}'")
    return 0
