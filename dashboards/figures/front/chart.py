"""Dots, axes, colours, symbols and staircase of a picture of the front, decided once. The modules
beside this one draw it with Plotly, with matplotlib and as characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bitfront.dashboards.figures.front.baseline import baseline_of, claim, kept_by
from bitfront.dashboards.figures.style import look
from bitfront.search.front import Objective, non_dominated
from bitfront.search.results.points import FrontPoint, Labels

ACCURACY_LABEL = "validation accuracy, %"
COST_LABEL = "FLOPs, MixBin convention, % of FP"
# Separates the name of a cost from the network it is a percentage of, in the label of an axis.
PERCENT = ", % of "
EMPTY = "no finished trials yet"
# Points whose costs span more than this factor are shown on a logarithmic axis.
DECADE = 10.0
# What stands in the legend for the smaller, paler marks.
DIM = "dominated (pale)"


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
    log: bool
    """the cost axis is logarithmic: costs are positive and span more than a decade"""
    dominated: dict[str, list[Dot]]
    """by method, as `front`"""
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
    baseline: Dot | None
    """the best network in full precision, where one was trained"""
    claim: str
    """what the front keeps of the baseline, and at which share of its cost; may be empty"""

    def place(self, x: float) -> float:
        """Where a cost is on the axis: its decimal logarithm where that is logarithmic."""
        return math.log10(x) if self.log else x


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
    log = _spans_decades([dot.x for dot in dots])
    x_range = _padded([math.log10(dot.x) if log else dot.x for dot in dots], padding)
    if log:
        x_range = 10 ** x_range[0], 10 ** x_range[1]
    y_range = _padded([dot.y for dot in dots], padding)
    visible_x = visible_y = None
    reference = labels.get("reference")
    if reference is not None:
        y, x = scale * reference[0], reference[1]
        visible_x = x if x_range[0] <= x <= x_range[1] else None
        visible_y = y if y_range[0] <= y <= y_range[1] else None
    baseline = baseline_of([dot.point for dot in dots], maximize)
    return Chart(
        x_label=x_label,
        y_label=labels.get("accuracy_label", ACCURACY_LABEL),
        x_range=x_range,
        y_range=y_range,
        log=log,
        dominated=_by_method(dot for dot in dots if not dot.point.on_front),
        front=_by_method(on_front),
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
        baseline=next((dot for dot in dots if dot.point is baseline), None),
        claim=_claim(baseline, dots, labels),
    )


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    """(value, text) of the ticks of a logarithmic axis: 1, 2 and 5 of every decade, or powers of
    ten alone where those are more than ten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        found = [step * 10.0**decade for decade in decades for step in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) <= 10:
            break
    skipped = -(-len(found) // 10) or 1
    return [(value, _short(value)) for value in found[::skipped]]


def _short(value: float) -> str:
    """A number as few letters: 20, 5k, 2M."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.999 * factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


def _spans_decades(costs: list[float]) -> bool:
    return bool(costs) and min(costs) > 0 and max(costs) / min(costs) > DECADE


def _by_method(dots: Iterable[Dot]) -> dict[str, list[Dot]]:
    found: dict[str, list[Dot]] = {}
    for dot in sorted(dots, key=lambda dot: dot.point.method):
        found.setdefault(dot.point.method, []).append(dot)
    return found


def _claim(baseline: FrontPoint | None, dots: Sequence[Dot], labels: Labels) -> str:
    """What the front keeps of the baseline, in a line; empty without one."""
    if baseline is None:
        return ""
    share, cost = labels.get("share", True), labels.get("cost_label", COST_LABEL).partition(",")[0]
    kept = kept_by([dot.point for dot in dots], baseline, labels.get("maximize", True), share)
    return claim(baseline, kept, share, cost)


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
