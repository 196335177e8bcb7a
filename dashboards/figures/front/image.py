"""The front as pdf, svg or png, drawn by matplotlib: Plotly's static export needs a browser. What
is drawn is decided in `chart`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from bitfront.dashboards.figures import FIGURES, Subject
from bitfront.dashboards.figures.front.baseline import NAME
from bitfront.dashboards.figures.front.chart import DIM, EMPTY, Chart, chart_of, ticks
from bitfront.dashboards.figures.style import (
    BUDGET,
    DOMINATED,
    GRID,
    INK,
    PALE,
    canvas,
    saved,
    titled,
    words,
)
from bitfront.search.results.points import FrontPoint, Labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def front_image(
    points: Sequence[FrontPoint],
    title: str,
    path: str | Path,
    dpi: int = 200,
    **labels: Unpack[Labels],
) -> Path:
    """Write the front as pdf, svg or png, by the name of the file (1600 x 1120 at 200 dpi)."""
    chart = chart_of(points, labels)
    figure, axes = canvas(8, 5.6, dpi)
    handles = [*_draw_points(axes, chart), *_draw_lines(axes, chart)]
    axes.set_xlim(chart.x_range)
    axes.set_ylim(chart.y_range)
    if chart.log:
        axes.set_xscale("log")
        values, texts = zip(*ticks(*chart.x_range), strict=True)
        axes.set_xticks(values, texts)
        axes.minorticks_off()
        axes.set_xlim(chart.x_range)
    titled(axes, title, 16, pad=24 if chart.claim else None)
    if chart.claim:
        axes.text(0.5, 1.02, chart.claim, transform=axes.transAxes, ha="center", **words(14))
    axes.set_xlabel(chart.x_label, **words(15))
    axes.set_ylabel(chart.y_label, **words(15))
    axes.tick_params(labelsize=14)
    axes.grid(color=GRID)
    if handles:
        _draw_legend(figure, handles)
    else:
        axes.text(0.5, 0.5, EMPTY, transform=axes.transAxes, ha="center", **words(15))
    return saved(figure, path)


def _draw_points(axes: Axes, chart: Chart) -> list[Line2D]:
    """Draw dominated points, staircase and front; return the entries of the legend."""
    handles: list[Line2D] = []
    for method, dots in chart.dominated.items():
        colour, _, marker = chart.styles[method]
        drawn = axes.plot(
            [dot.x for dot in dots], [dot.y for dot in dots], marker, color=colour, alpha=PALE,
            markersize=5.5, markeredgewidth=0, label=method,
        )  # fmt: skip
        handles += [] if method in chart.front else drawn
    if chart.steps:
        xs, ys = zip(*chart.steps, strict=True)
        axes.plot(list(xs), list(ys), color=INK, linewidth=1.5)
    for method, dots in chart.front.items():
        colour, _, marker = chart.styles[method]
        several = [dot for dot in dots if dot.point.spread]
        axes.errorbar(
            [dot.x for dot in several], [dot.y for dot in several],
            [chart.scale * (dot.point.spread or 0.0) for dot in several],
            fmt="none", ecolor=colour, elinewidth=1.4, capsize=4,
        )  # fmt: skip
        handles += axes.plot(
            [dot.x for dot in dots], [dot.y for dot in dots], marker, color=colour,
            markersize=chart.marker_size, markeredgecolor=INK, markeredgewidth=0.8, label=method,
        )  # fmt: skip
    if chart.baseline is not None:
        handles += axes.plot(
            [chart.baseline.x], [chart.baseline.y], "o", markersize=17, markerfacecolor="none",
            markeredgecolor=INK, markeredgewidth=1.6, label=NAME,
        )  # fmt: skip
        axes.axhline(chart.baseline.y, color=INK, linestyle="-.", linewidth=1, alpha=0.5, zorder=1)
    if chart.dominated:
        handles += axes.plot(
            [], [], "o", color=DOMINATED, alpha=0.7, markersize=5.5, markeredgewidth=0, label=DIM
        )
    return handles


def _draw_lines(axes: Axes, chart: Chart) -> list[Line2D]:
    """Draw reference and budgets; return the entry of the reference in the legend."""
    x, y = chart.reference
    dotted: dict[str, Any] = {"color": INK, "linestyle": ":", "zorder": 1, "label": "reference"}
    lines = [] if x is None else [axes.axvline(x, **dotted)]
    lines += [] if y is None else [axes.axhline(y, **dotted)]
    for name, value in chart.budgets:
        axes.axvline(value, color=BUDGET, linestyle="--", linewidth=1.2, zorder=1)
        axes.text(
            value, chart.y_range[0], f"{name} ", rotation=90, ha="right", va="bottom",
            **{**words(10), "color": BUDGET},
        )  # fmt: skip
    return lines[:1]


def _draw_legend(figure: Figure, handles: list[Line2D]) -> None:
    size = 14 if len(handles) <= 8 else 12
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=_legend_columns([str(handle.get_label()) for handle in handles], size),
        fontsize=size,
        frameon=False,
        labelcolor=INK,
        handlelength=1.2,
        handletextpad=0.3,
        columnspacing=1.0,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _legend_columns(labels: list[str], font_size: int, room: float = 560) -> int:
    """How many columns of a legend fit in `room` points: matplotlib lets it run off the page."""
    for columns in range(len(labels), 1, -1):
        rows, longer = divmod(len(labels), columns)  # the first `longer` columns have one row more
        starts = [i * rows + min(i, longer) for i in range(columns + 1)]
        widest = [max(map(len, labels[a:b])) for a, b in itertools.pairwise(starts)]
        if sum(0.6 * letters + 2.5 for letters in widest) * font_size <= room:
            return columns
    return 1


@FIGURES.register
class FrontKind:
    """`bitfront figure --kind front`."""

    name = "front"
    doc = "quality against cost, the front as a staircase"

    @staticmethod
    def draw(subject: Subject, path: Path) -> None:
        """Write the front of the search."""
        view = subject.view()
        front_image(view.points, subject.titled(view.title), path, **view.labels)
