"""The points of a front as CSV. The table for the terminal is in `bitfront.terminal.summary`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from bitfront.search.results.points import FrontPoint

CSV_COLUMNS = ("trial", "method", "plan", "accuracy", "spread", "cost", "cost_pct", "on_front")
# Columns that are left out where no point has a value.
OPTIONAL = ("spread", "cost_pct")


def front_csv(points: Sequence[FrontPoint], quality: str = "accuracy") -> str:
    """All points as CSV: the fixed columns, all sampled settings, then the extras in alphabetical
    order. `quality` and `QUALITY_spread`, its standard deviation over seeds, have the same unit:
    accuracies are fractions."""
    fixed = [
        name
        for name in CSV_COLUMNS
        if name not in OPTIONAL or any(getattr(point, name) is not None for point in points)
    ]
    heads = [{"accuracy": quality, "spread": f"{quality}_spread"}.get(name, name) for name in fixed]
    drawn = list(dict.fromkeys(name for point in points for name in point.drawn))
    extras = sorted({name for point in points for name in point.extra})
    named = [*dict.fromkeys([*CSV_COLUMNS, *heads]), *drawn, *extras]
    if clash := {name for name in named if named.count(name) > 1}:
        raise ValueError(f"{sorted(clash)} would repeat a column of the table")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*heads, *drawn, *extras])
    for point in points:
        row = [getattr(point, name) for name in fixed]  # None is written as nothing
        row += [point.drawn.get(name, "") for name in drawn]
        writer.writerow([*row, *(point.extra.get(name, "") for name in extras)])
    return text.getvalue()
