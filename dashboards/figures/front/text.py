"""The front as a scatter of characters for the terminal. Imports no plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

from bitfront.dashboards.figures.front.chart import EMPTY, chart_of
from bitfront.search.results.points import FrontPoint, Labels


def front_text(
    points: Sequence[FrontPoint],
    width: int = 72,
    height: int = 18,
    **labels: Unpack[Labels],
) -> str:
    """The front as `height` lines of characters, none longer than `width`."""
    chart = chart_of(points, labels, padding=0.0)
    front = [dot for dots in chart.front.values() for dot in dots]
    if not front and not chart.dominated:
        return EMPTY[:width]
    if width < 24 or height < 7:  # no room for axes
        return f"{len(front)} on the front"[:width]

    (x_low, x_high), (y_low, y_high) = chart.x_range, chart.y_range
    ticks = _number(y_high, y_high - y_low), _number(y_low, y_high - y_low)
    gutter = max(map(len, ticks))
    columns, rows = width - gutter - 2, height - 4
    canvas = [[" "] * columns for _ in range(rows)]
    lost = [dot for dots in chart.dominated.values() for dot in dots]
    at_low, at_high = chart.place(x_low), chart.place(x_high)
    for mark, dots in (("·", lost), ("●", front)):
        for dot in dots:
            column = round((chart.place(dot.x) - at_low) / (at_high - at_low) * (columns - 1))
            row = round((y_high - dot.y) / (y_high - y_low) * (rows - 1))
            canvas[row][column] = mark

    edges = {0: ticks[0], rows - 1: ticks[1]}
    indent = " " * (gutter + 2)
    spans = (x_low, x_high) if chart.log else (x_high - x_low,) * 2
    left, right = _number(x_low, spans[0]), _number(x_high, spans[1])
    lines = [
        _justified(chart.y_label, "● front  · dominated", width),
        *(f"{edges.get(i, ''):>{gutter}} │{''.join(row)}" for i, row in enumerate(canvas)),
        f"{'':>{gutter}} └{'─' * columns}",
        indent + _justified(left, right, columns),
        indent + (chart.x_label + (", log scale" if chart.log else "")).center(columns),
    ]
    return "\n".join(line[:width].rstrip() for line in lines)


def _number(value: float, span: float) -> str:
    """A tick with as many decimals as the span of the axis needs, large ones in e-notation."""
    if abs(value) >= 1e5:
        return f"{value:.3g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(span)))}f}"


def _justified(left: str, right: str, width: int) -> str:
    """Both texts at the ends of a line; the left one alone where both do not fit."""
    gap = width - len(left) - len(right)
    return left + " " * gap + right if gap >= 1 else left
