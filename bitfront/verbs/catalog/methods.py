"""The binarization methods."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.terminal import tables as terminal
from bitfront.trainables.methods import METHODS
from bitfront.verbs import options as shared
from bitfront.verbs.declared import declared_names, declared_text


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.pattern(parser)


def action(args: Namespace) -> int:
    found = [METHODS.get(name).describe() for name in METHODS.names(args.pattern)]
    others = declared_names(METHODS, args.pattern)
    if args.json:
        terminal.show_json([*found, *others])
        return 0
    rows = [
        [m["name"], "".join(m["levels"]), m["doc"], terminal.defaults(m["params"])] for m in found
    ]
    if rows or not others:
        terminal.show(
            terminal.table(["method", "levels", "what", "parameters"], rows, prose=(2, 3))
        )
    if others:
        terminal.show(declared_text(others))
    if args.pattern != "*":
        told = [
            f"{m['name']}: {m['paper']}" + (f", {m['link']}" if m["link"] else "") for m in found
        ]
        terminal.show("\n" + "\n".join(map(terminal.filled, told)))
    terminal.show("\nall parameters, ranges and papers: bitfront methods --json")
    return 0
