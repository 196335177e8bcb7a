"""The datasets, and which of them are here."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from bitfront.terminal import tables as terminal
from bitfront.trainables.data import DATASETS
from bitfront.verbs import options as shared


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.pattern(parser)
    shared.data_dir(parser)


def action(args: Namespace) -> int:
    data_dir = args.data_dir or os.environ.get("BITFRONT_DATA")
    found = [_described(name, data_dir) for name in DATASETS.names(args.pattern)]
    if args.json:
        terminal.show_json(found)
        return 0
    rows = [
        [
            d["name"],
            "x".join(map(str, d["shape"])),
            str(d["classes"]),
            f"{d['train']:,}",
            f"{d['test']:,}",
            "yes" if d["available"] else "no",
            d["source"],
        ]
        for d in found
    ]
    headers = ["dataset", "shape", "classes", "train", "test", "here", "what"]
    terminal.show(terminal.table(headers, rows, prose=(6,)))
    if not all(d["available"] for d in found):
        where = data_dir or "--data-dir DIR or BITFRONT_DATA"
        terminal.say(f"\nothers are read from {where}; to get one: bitfront datasets --json")
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
