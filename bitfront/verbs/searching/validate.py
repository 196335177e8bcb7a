"""Check a search YAML; nothing is started."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.terminal import tables as terminal
from bitfront.terminal.own_data import data_text
from bitfront.verbs import options as shared
from bitfront.verbs.opening import search_of, waiting_line


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.search_yaml(parser)
    parser.set_defaults(search=None)


def action(args: Namespace) -> int:
    with waiting_line(args):
        config, _ = search_of(args)
        seen = "" if args.json else data_text(config.task)
    if seen:
        terminal.say(seen)
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
