"""The networks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from bitfront.terminal import tables as terminal
from bitfront.trainables.models import MODELS
from bitfront.verbs import options as shared
from bitfront.verbs.declared import declared_names, declared_text


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.pattern(parser)


def action(args: Namespace) -> int:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "doc": MODELS.get(name).doc,
            "params": {k: p.describe() for k, p in MODELS.get(name).params.items()},
        }
        for name in MODELS.names(args.pattern)
    ]
    others = declared_names(MODELS, args.pattern)
    if args.json:
        terminal.show_json([*found, *others])
        return 0
    rows = [[m["name"], terminal.defaults(m["params"]), m["doc"]] for m in found]
    if rows or not others:
        terminal.show(terminal.table(["model", "parameters", "what"], rows, prose=(1, 2)))
    if others:
        terminal.show(declared_text(others))
    return 0
