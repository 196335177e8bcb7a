"""The datasets, and which of them are here."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from bitfront.terminal import tables as terminal
from bitfront.terminal.own_data import data_text, look_at, look_json, look_lines
from bitfront.trainables.data import DATASETS, train_examples
from bitfront.trainables.settings import ModelSpec
from bitfront.trainables.task import Task
from bitfront.verbs import options as shared
from bitfront.verbs.declared import declared_names, declared_text


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument(
        "pattern", nargs="?", default="*", help="a wildcard, or data of your own: my_data.py:load"
    )
    shared.data_dir(parser)


def action(args: Namespace) -> int:
    data_dir = args.data_dir or os.environ.get("BITFRONT_DATA")
    if ":" in args.pattern or DATASETS.reference(args.pattern) is not None:
        return _show_own(args.pattern, data_dir, args.json)
    found = [_described(name, data_dir) for name in DATASETS.names(args.pattern)]
    others = declared_names(DATASETS, args.pattern)
    if args.json:
        terminal.show_json([*found, *others])
        return 0
    rows = [
        [
            d["name"],
            "x".join(map(str, d["shape"])),
            str(d["classes"]),
            f"{d['train']:,}",
            f"{d['test']:,}",
            "yes" if d["available"] else "no",
        ]
        for d in found
    ]
    headers = ["dataset", "shape", "classes", "train", "test", "here"]
    if rows or not others:
        sources = [d["source"] for d in found]
        terminal.show(terminal.described_table(headers, rows, sources, "what"))
    if others:
        terminal.show(declared_text(others))
    if not all(d["available"] for d in found):
        where = data_dir or "--data-dir DIR or BITFRONT_DATA"
        terminal.say(f"\nothers are read from {where}; to get one: bitfront datasets --json")
    return 0


def _show_own(name: str, data_dir: str | None, as_json: bool) -> int:
    """Look at data of the user's own and show what they look like."""
    settled = DATASETS.settle(name, data_dir)
    found = look_at(settled)
    if found is None:  # a family that is described by its name
        info = _described(settled, data_dir)
        count = train_examples(settled, data_dir)
        info["train"] = count if count is not None else info["train"]
        if as_json:
            terminal.show_json(info)
        else:
            terminal.say(
                data_text(Task(dataset=settled, model=ModelSpec(name="mlp"), data_dir=data_dir))
            )
        return 0
    if as_json:
        terminal.show_json(look_json(found))
        return 0
    terminal.say("\n".join(look_lines(found, Task.model_fields["val_fraction"].default)))
    for note in found.notes:
        terminal.say(f"note: {note}")
    return 0


def _described(name: str, data_dir: str | None) -> dict[str, Any]:
    info = DATASETS.get(name)
    return {
        "name": name,
        "shape": list(info.shape),
        "classes": info.classes,
        "train": info.train_size,
        "test": info.test_size,
        "embedded": info.embedded,
        "available": info.is_there(data_dir),
        "source": info.source,
        "get": info.how_to_get(Path(data_dir) if data_dir else None),
    }
