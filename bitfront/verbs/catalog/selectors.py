"""The algorithms that make a plan for a budget."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.terminal import tables as terminal
from bitfront.trainables.selectors import SELECTORS
from bitfront.verbs import options as shared
from bitfront.verbs.declared import declared_names, declared_text


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.pattern(parser)


def action(args: Namespace) -> int:
    found = [SELECTORS.get(name).describe() for name in SELECTORS.names(args.pattern)]
    others = declared_names(SELECTORS, args.pattern)
    if args.json:
        terminal.show_json([*found, *others])
        return 0
    rows = [[s["name"], "yes" if s["trained"] else "no", s["doc"]] for s in found]
    if rows or not others:
        terminal.show(terminal.table(["selector", "trains", "what"], rows, prose=(2,)))
    if others:
        terminal.show(declared_text(others))
    terminal.show("\nall parameters and ranges: bitfront selectors --json")
    return 0
