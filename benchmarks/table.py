"""What every benchmark prints and keeps: a plain table, the bars it is held to, and a CSV named
by what was measured, the machine and the versions. No measuring lives here."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

Cell = str | int | float | None
Row = dict[str, Cell]

RESULTS = Path(__file__).parent / "results"


def shown(cell: Cell) -> str:
    """A cell as people read it: three significant digits, a dash where nothing was measured."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return str(cell)


def format_table(rows: Sequence[Row]) -> str:
    """Columns as wide as their widest cell, numbers to the right."""
    names = list(rows[0])
    cells = [[shown(row.get(name)) for name in names] for row in rows]
    widths = [max(len(n), *(len(line[i]) for line in cells)) for i, n in enumerate(names)]
    numeric = [all(not isinstance(row.get(n), str) for row in rows) for n in names]

    def line(parts: Sequence[str]) -> str:
        aligned = (
            part.rjust(width) if right else part.ljust(width)
            for part, width, right in zip(parts, widths, numeric, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return "\n".join([line(names), line(["-" * w for w in widths]), *(line(c) for c in cells)])


def bar(
    what: str, value: float, at_least: float | None = None, at_most: float | None = None
) -> str:
    """One line that says whether a bar is reached."""
    reached = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    limit = f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}"
    return f"{'PASS' if reached else 'MISS'}  {what}: {shown(value)} ({limit})"


def csv_path(what: str, packages: Sequence[str], folder: Path | None = None) -> Path:
    """For example `overhead-2cpu-ray2.60-optuna5.0.csv`: no host name, no date."""
    versions = [f"{p}{'.'.join(metadata.version(p).split('.')[:2])}" for p in packages]
    return (folder or RESULTS) / f"{'-'.join([what, f'{os.cpu_count()}cpu', *versions])}.csv"


def write_csv(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[Row]:
    """The rows of an earlier or interrupted run, which goes on after them; none without a file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return [dict(row) for row in csv.DictReader(lines)]


def append_csv(row: Row, path: Path) -> None:
    """Another row of a CSV that several processes may fill."""
    if not path.exists():
        write_csv([row], path)
        return
    with path.open("a", newline="", encoding="utf-8") as out:
        csv.DictWriter(out, list(row), lineterminator="\n").writerow(row)
