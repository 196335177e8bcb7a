"""Pictures of a front: interactive page, PNG, CSV and terminal, all from the same points.

Ranges, colours, symbols and words are decided once (`_Chart`); each renderer below only draws
them. Plotly and matplotlib are imported when used, so that the terminal picture stays cheap.
"""

import csv
import io
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from bitfront.dashboards.figures.style import (
    BUDGET,
    DOMINATED,
    GRID,
    INK,
    axis,
    canvas,
    framed,
    look,
    markup,
    noted,
    saved,
    titled,
    words,
)
from bitfront.dashboards.pages.page import figure_page
from bitfront.search.front import Objective, non_dominated

if TYPE_CHECKING:
    import plotly.graph_objects as go

ACCURACY_LABEL = "validation accuracy, %"
COST_LABEL = "FLOPs, MixBin convention, % of FP"
# In the label of a cost, before what it is a percentage of.
PERCENT = ", % of "
EMPTY = "no finished trials yet"

CSV_COLUMNS = ("trial", "method", "plan", "accuracy", "cost", "cost_pct", "on_front")


@dataclass(frozen=True)
class FrontPoint:
    """One finished point. Accuracy, or whatever quality the labels name, is a fraction where they
    say `share`; `cost_pct` is against the dearest full-precision network of the search."""

    trial: str
    method: str
    plan: str
    accuracy: float
    cost: float
    cost_pct: float | None
    on_front: bool
    extra: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """what tells it apart besides method and plan, as people read it"""
    drawn: dict[str, Any] = field(default_factory=dict)
    """the same in full: whole names, exact values"""
    seeds: int = 1
    """how many trials the quality is the mean of"""

    @property
    def told(self) -> str:
        """What it is, in a line."""
        drawn = (f"{name}={text}" for name, text in self.settings.items())
        return " ".join([self.trial, self.method, *drawn, self.plan])


class Labels(TypedDict, total=False):
    """The optional words of a figure; `reference` is (accuracy, cost in the unit of the x axis),
    `budgets` are (name, cost in that unit). `share`: the quality is a fraction, shown in percent;
    `maximize`: more of it is better; `methods` fix their colours by their order."""

    methods: Sequence[str]
    accuracy_label: str
    cost_label: str
    share: bool
    maximize: bool
    reference: tuple[float, float] | None
    budgets: Sequence[tuple[str, float]]


class _Dot(NamedTuple):
    x: float
    y: float
    point: FrontPoint


@dataclass(frozen=True)
class _Chart:
    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    dominated: list[_Dot]
    front: dict[str, list[_Dot]]  # by method, in the order of the legend
    styles: dict[str, tuple[str, str, str]]
    marker_size: int
    steps: list[tuple[float, float]]  # corners of the front: best accuracy within each cost
    reference: tuple[float | None, float | None]  # (x, y) of its lines, None where out of view
    budgets: list[tuple[str, float]]  # those in view


def front_figure(points: Sequence[FrontPoint], title: str, **labels: Unpack[Labels]) -> "go.Figure":
    """The front as an interactive Plotly figure; a click on a point finds its trial's id in
    `customdata`. Reference and budgets are lines where they fall within the view; they never
    stretch the axes."""
    import plotly.graph_objects as go

    chart = _chart(points, labels)
    figure = go.Figure()

    def scatter(dots: list[_Dot], name: str, marker: dict[str, object]) -> None:
        figure.add_scatter(
            x=[dot.x for dot in dots],
            y=[dot.y for dot in dots],
            mode="markers",
            name=markup(name),
            marker=marker,
            customdata=[dot.point.trial for dot in dots],
            hovertext=[_hover(dot, chart) for dot in dots],
            hovertemplate="%{hovertext}<extra></extra>",
        )

    if chart.dominated:
        scatter(chart.dominated, "dominated", {"color": DOMINATED, "size": 6, "opacity": 0.7})
    if chart.steps:
        xs, ys = zip(*chart.steps, strict=True)
        figure.add_scatter(
            x=xs, y=ys, mode="lines", name="front", line={"color": INK, "width": 1.5},
            hoverinfo="skip", showlegend=False,
        )  # fmt: skip
    for method, dots in chart.front.items():
        colour, symbol, _ = chart.styles[method]
        outline = {"color": INK, "width": 1}
        marker = {"color": colour, "symbol": symbol, "size": chart.marker_size, "line": outline}
        scatter(dots, method, marker)
    _plotly_lines(figure, chart)
    if not chart.steps and not chart.dominated:
        noted(figure, EMPTY)
    return framed(
        figure,
        title,
        height=560,
        showlegend=bool(chart.steps or chart.dominated),
        xaxis=axis(chart.x_label, range=chart.x_range),
        yaxis=axis(chart.y_label, range=chart.y_range),
    )


def _plotly_lines(figure: "go.Figure", chart: _Chart) -> None:
    x, y = chart.reference
    line = {"line": {"color": INK, "width": 1, "dash": "dot"}, "layer": "below"}
    legend = {"name": "reference", "showlegend": True}
    if x is not None:
        figure.add_vline(x=x, **line, **legend)
    if y is not None:
        figure.add_hline(y=y, **line, **(legend if x is None else {}))
    for name, value in chart.budgets:
        figure.add_vline(
            x=value,
            line={"color": BUDGET, "width": 1.5, "dash": "dash"},
            layer="below",
            annotation={
                "text": markup(name), "font": {"size": 11, "color": BUDGET}, "textangle": -90
            },
            annotation_position="bottom left",
        )  # fmt: skip


def front_html(points: Sequence[FrontPoint], title: str, **labels: Unpack[Labels]) -> str:
    """The figure as one page that needs no network."""
    return figure_page(front_figure(points, title, **labels), title, "front")


def front_image(
    points: Sequence[FrontPoint],
    title: str,
    path: str | Path,
    dpi: int = 200,
    **labels: Unpack[Labels],
) -> Path:
    """The same picture as pdf, svg or png (800 x 560 at twice the density)."""
    chart = _chart(points, labels)
    figure, axes = canvas(8, 5.6, dpi)
    handles = []
    if chart.dominated:
        xs, ys = [dot.x for dot in chart.dominated], [dot.y for dot in chart.dominated]
        handles += axes.plot(
            xs, ys, "o", color=DOMINATED, alpha=0.7, markersize=5, markeredgewidth=0,
            label="dominated",
        )  # fmt: skip
    if chart.steps:
        xs, ys = map(list, zip(*chart.steps, strict=True))
        axes.plot(xs, ys, color=INK, linewidth=1.5)
    for method, dots in chart.front.items():
        colour, _, marker = chart.styles[method]
        handles += axes.plot(
            [dot.x for dot in dots], [dot.y for dot in dots], marker, color=colour,
            markersize=chart.marker_size, markeredgecolor=INK, markeredgewidth=0.8, label=method,
        )  # fmt: skip
    x, y = chart.reference
    dotted: dict[str, Any] = {"color": INK, "linestyle": ":", "zorder": 1, "label": "reference"}
    lines = [] if x is None else [axes.axvline(x, **dotted)]
    lines += [] if y is None else [axes.axhline(y, **dotted)]
    handles += lines[:1]
    for name, value in chart.budgets:
        axes.axvline(value, color=BUDGET, linestyle="--", linewidth=1.2, zorder=1)
        axes.text(
            value, chart.y_range[0], f"{name} ", rotation=90, ha="right", va="bottom",
            **{**words(10), "color": BUDGET},
        )  # fmt: skip

    axes.set_xlim(chart.x_range)
    axes.set_ylim(chart.y_range)
    titled(axes, title, 16)
    axes.set_xlabel(chart.x_label, **words(15))
    axes.set_ylabel(chart.y_label, **words(15))
    axes.tick_params(labelsize=14)
    axes.grid(color=GRID)
    if handles:
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
    else:
        axes.text(0.5, 0.5, EMPTY, transform=axes.transAxes, ha="center", **words(15))
    return saved(figure, path)


def front_csv(points: Sequence[FrontPoint], quality: str = "accuracy") -> str:
    """All points as CSV text: the fixed columns (percentages where there are any), all that was
    drawn, then every extra in alphabetical order."""
    percent = any(point.cost_pct is not None for point in points)
    fixed = [name for name in CSV_COLUMNS if percent or name != "cost_pct"]
    drawn = list(dict.fromkeys(name for point in points for name in point.drawn))
    extras = sorted({name for point in points for name in point.extra})
    named = [*CSV_COLUMNS, *drawn, *extras]
    if clash := {name for name in named if named.count(name) > 1}:
        raise ValueError(f"{sorted(clash)} would repeat a column of the table")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = [quality if name == "accuracy" else name for name in fixed]
    writer.writerow([*heads, *drawn, *extras])
    for point in points:
        row = [getattr(point, name) for name in fixed]  # None is written as nothing
        row += [point.drawn.get(name, "") for name in drawn]
        writer.writerow([*row, *(point.extra.get(name, "") for name in extras)])
    return text.getvalue()


def front_text(
    points: Sequence[FrontPoint],
    width: int = 72,
    height: int = 18,
    **labels: Unpack[Labels],
) -> str:
    """A scatter of characters for the terminal: `height` lines, none longer than `width`."""
    chart = _chart(points, labels, padding=0.0)
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
    for mark, dots in (("·", chart.dominated), ("●", front)):
        for dot in dots:
            column = round((dot.x - x_low) / (x_high - x_low) * (columns - 1))
            row = round((y_high - dot.y) / (y_high - y_low) * (rows - 1))
            canvas[row][column] = mark

    edges = {0: ticks[0], rows - 1: ticks[1]}
    indent = " " * (gutter + 2)
    left, right = _number(x_low, x_high - x_low), _number(x_high, x_high - x_low)
    lines = [
        _spread(chart.y_label, "● front  · dominated", width),
        *(f"{edges.get(i, ''):>{gutter}} │{''.join(row)}" for i, row in enumerate(canvas)),
        f"{'':>{gutter}} └{'─' * columns}",
        indent + _spread(left, right, columns),
        indent + chart.x_label.center(columns),
    ]
    return "\n".join(line[:width].rstrip() for line in lines)


def _chart(points: Sequence[FrontPoint], labels: Labels, padding: float = 0.06) -> _Chart:
    x_of, x_label = _cost_axis(points, labels.get("cost_label", COST_LABEL))
    scale = 100 if labels.get("share", True) else 1
    maximize = labels.get("maximize", True)
    dots = [_Dot(x_of(point), scale * point.accuracy, point) for point in points]
    dots = [dot for dot in dots if math.isfinite(dot.x) and math.isfinite(dot.y)]
    dots.sort(key=lambda dot: (dot.x, -dot.y, dot.point.trial))
    on_front = [dot for dot in dots if dot.point.on_front]
    front: dict[str, list[_Dot]] = {}
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
    return _Chart(
        x_label=x_label,
        y_label=labels.get("accuracy_label", ACCURACY_LABEL),
        x_range=x_range,
        y_range=y_range,
        dominated=[dot for dot in dots if not dot.point.on_front],
        front=front,
        # All methods, by name: one keeps its look while the front changes.
        styles={
            m: look(i)
            for i, m in enumerate(labels.get("methods") or sorted({p.method for p in points}))
        },
        marker_size=10 if len(on_front) <= 25 else 8,
        steps=_steps(on_front, x_range[1], maximize),
        reference=(visible_x, visible_y),
        budgets=[(n, v) for n, v in labels.get("budgets", ()) if x_range[0] <= v <= x_range[1]],
    )


def _cost_axis(
    points: Sequence[FrontPoint], cost_label: str
) -> tuple[Callable[[FrontPoint], float], str]:
    """Percent of the dearest FP network when every point knows it; otherwise the count itself, for
    all."""
    if all(point.cost_pct is not None for point in points):
        return lambda point: math.nan if point.cost_pct is None else point.cost_pct, cost_label
    return lambda point: point.cost, cost_label.partition(PERCENT)[0]


def _steps(dots: list[_Dot], right: float, maximize: bool) -> list[tuple[float, float]]:
    """The staircase, held to the right edge: a larger budget still buys the last point."""
    corners = staircase([(dot.x, dot.y) for dot in dots], maximize)
    return [*corners, (right, corners[-1][1])] if corners else []


def staircase(
    points: Sequence[tuple[float, float]], maximize: bool = True
) -> list[tuple[float, float]]:
    """Corners of the best quality within each cost, of (cost, quality).

    A front over more than these two objectives is not monotone here; its hull of steps is.
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
    """Range of an axis with room for the markers at its ends; never empty."""
    if not values:
        return 0.0, 100.0
    low, high = min(values), max(values)
    apart = high - low > 1e-12 * max(abs(low), abs(high), 1.0)
    pad = (high - low) * share if apart else max(abs(high) * 0.06, 1.0)
    return low - pad, high + pad


def _hover(dot: _Dot, chart: _Chart) -> str:
    point = dot.point
    quality = f"{dot.y:.2f}" if abs(dot.y) >= 1 else f"{dot.y:.4g}"
    mean = f" (mean of {point.seeds} seeds)" if point.seeds > 1 else ""
    rows = [
        ("method", point.method),
        *point.settings.items(),
        ("plan", point.plan),
        (chart.y_label, quality + mean),
        ("cost", f"{point.cost:,.0f}" if abs(point.cost) >= 1000 else f"{point.cost:g}"),
    ]
    if point.cost_pct is not None:
        _, _, network = chart.x_label.partition(PERCENT)
        rows.append((f"cost{PERCENT}{network or 'FP'}", f"{point.cost_pct:.2f}"))
    rows += sorted(point.extra.items())
    lines = [f"<b>{markup(point.trial)}</b>"]
    lines += [markup(f"{name}: {text}") for name, text in rows]
    return "<br>".join(lines)


def _legend_columns(labels: list[str], font_size: int, room: float = 560) -> int:
    """As many columns as fit in `room` points; matplotlib itself lets a legend run off the page."""
    for columns in range(len(labels), 1, -1):
        rows, longer = divmod(len(labels), columns)  # the first `longer` columns have one row more
        starts = [i * rows + min(i, longer) for i in range(columns + 1)]
        widest = [max(map(len, labels[a:b])) for a, b in itertools.pairwise(starts)]
        if sum(0.6 * letters + 2.5 for letters in widest) * font_size <= room:
            return columns
    return 1


def _number(value: float, span: float) -> str:
    """A tick: as many decimals as the span of the axis can show, thousands in e-notation."""
    if abs(value) >= 1e5:
        return f"{value:.3g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(span)))}f}"


def _spread(left: str, right: str, width: int) -> str:
    """Both texts at the ends of a line; the left one alone when they do not fit."""
    gap = width - len(left) - len(right)
    return left + " " * gap + right if gap >= 1 else left
