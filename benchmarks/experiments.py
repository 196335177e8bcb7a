"""Benchmarks of several experiments share their command line: which one, where data lie, threads,
where the CSV goes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.table import Row, csv_path, format_table, write_csv

Experiment = Callable[[argparse.Namespace], tuple[list[Row], list[str]]]
"""what it measured, and whether its bars are reached"""


def parser(name: str, doc: str | None, experiments: Sequence[str]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("experiment", choices=tuple(experiments))
    made.add_argument("--data-dir", default=os.environ.get("BITFRONT_DATA"))
    made.add_argument("--threads", type=int, default=1, help="of torch")
    made.add_argument("--out", type=Path, help="folder of the CSV (benchmarks/results)")
    return made


def run(
    name: str,
    args: argparse.Namespace,
    experiments: Mapping[str, Experiment],
    packages: Sequence[str] = ("torch",),
) -> None:
    """Print and keep what the chosen experiment measures."""
    import torch

    torch.set_num_threads(args.threads)
    rows, bars = experiments[args.experiment](args)
    print(format_table(rows))
    print("\n".join(bars))
    write_csv(rows, csv_path(f"{name}-{args.experiment}", packages, args.out))
