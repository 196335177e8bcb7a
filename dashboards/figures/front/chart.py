"""Dots, axes, colours, symbols and staircase of a picture of the front, decided once. The modules
beside this one draw it with Plotly, with matplotlib and as characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bitfront.dashboards.figures.style import look
from bitfront.search.front import Objective, non_dominated
from bitfront.search.results.points import FrontPoint, Labels

ACCURACY_LABEL = "validation accuracy, %"
COST_LABEL = "FLOPs, MixBin convention, % of FP"
# Separates the name of a cost from the network it is a percentage of, in the label of an axis.
PERCENT = ", % of "
EMPTY = "no finished trials yet"


class Dot(NamedTuple):
    """A point of the front at its place on the axes."""

    x: float
    y: float
    point: FrontPoint


@dataclass(frozen=True)
class Chart:
    """A picture of a front, before it is drawn."""

    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    dominated: list[Dot]
    front: dict[str, list[Dot]]
    """by method, in the order of the legend"""
    styles: dict[str, tuple[str, str, str]]
    """by method: colour, Plotly symbol, matplotlib marker"""
    marker_size: int
    scale: float
    """a quality times this is its place on the y axis: 100 where fractions are shown in percent"""
    steps: list[tuple[float, float]]
    """corners of the staircase: the best quality within each cost"""
    reference: tuple[float | None, float | None]
    """(x, y) of its two lines, None where a line lies outside the axes"""
    budgets: list[tuple[str, float]]
    """(name, x) of those within the axes"""


def chart_of(points: Sequence[FrontPoint], labels: Labels, padding: float = 0.06) -> Chart:
    """The chart of these points. Points whose cost or quality is not finite are left out;
    `padding` is the free share of an axis at either end."""
    x_of, x_label = _cost_axis(points, labels.get("cost_label", COST_LABEL))
    scale = 100 if labels.get("share", True) else 1
    maximize = labels.get("maximize", True)
    dots = [Dot(x_of(point), scale * point.accuracy, point) for point in points]
    dots = [dot for dot in dots if math.isfinite(dot.x) and math.isfinite(dot.y)]
    dots.sort(key=lambda dot: (dot.x, -dot.y, dot.point.trial))
    on_front = [dot for dot in dots if dot.point.on_front]
    front: dict[str, list[Dot]] = {}
    for dot in sorted(on_front, key=lambda dot: dot.point.method):
        front.setdefault(dot.point.method, []).append(dot)
    x_range = _padded([dot.x for dot in dots], padding)
    y_range = _padded([dot.y for dot in dots], padding)
    visible_x = visible_y = None
    reference = labels.get("reference")
    if reference is not None:
        y, x = scale * reference[0], reference[1]
        visible_x = x if x_range[0] <= x <= x_range[1] else None
        visible_y = y if y_range[0] <= y <= y_range[1] else None
    return Chart(
        x_label=x_label,
        y_label=labels.get("accuracy_label", ACCURACY_LABEL),
        x_range=x_range,
        y_range=y_range,
        dominated=[dot for dot in dots if not dot.point.on_front],
        front=front,
        # Of all methods, so that each keeps its colour while the front changes.
        styles={
            m: look(i)
            for i, m in enumerate(labels.get("methods") or sorted({p.method for p in points}))
        },
        marker_size=10 if len(on_front) <= 25 else 8,
        scale=scale,
        steps=_steps(on_front, x_range[1], maximize),
        reference=(visible_x, visible_y),
        budgets=[(n, v) for n, v in labels.get("budgets", ()) if x_range[0] <= v <= x_range[1]],
    )


def _cost_axis(
    points: Sequence[FrontPoint], cost_label: str
) -> tuple[Callable[[FrontPoint], float], str]:
    """(cost of a point on the axis, label of the axis): percent of the dearest FP network where
    every point has it, otherwise the count."""
    if all(point.cost_pct is not None for point in points):
        return lambda point: math.nan if point.cost_pct is None else point.cost_pct, cost_label
    return lambda point: point.cost, cost_label.partition(PERCENT)[0]


def _steps(dots: list[Dot], right: float, maximize: bool) -> list[tuple[float, float]]:
    """Corners of the staircase of these dots, prolonged to the right edge: a larger budget still
    contains the last point."""
    corners = staircase([(dot.x, dot.y) for dot in dots], maximize)
    return [*corners, (right, corners[-1][1])] if corners else []


def staircase(
    points: Sequence[tuple[float, float]], maximize: bool = True
) -> list[tuple[float, float]]:
    """Corners of the best quality within each cost; `points` are (cost, quality).

    The front of three or more objectives is not monotone in two of them: only those of its points
    that no other point beats in these two are corners.
    """
    axes = (Objective("quality", maximize), Objective("cost", maximize=False))
    kept = [points[i] for i in non_dominated([(y, x) for x, y in points], axes)]
    corners: list[tuple[float, float]] = []
    for x, y in sorted(kept):
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return corners


def _padded(values: list[float], share: float) -> tuple[float, float]:
    """The range of an axis with room for the markers at both ends; never empty."""
    if not values:
        return 0.0, 100.0
    low, high = min(values), max(values)
    apart = high - low > 1e-12 * max(abs(low), abs(high), 1.0)
    pad = (high - low) * share if apart else max(abs(high) * 0.06, 1.0)
    return low - pad, high + pad
