"""Pictures of a front: interactive page, PNG, CSV and terminal, all from the same points.

Ranges, colours, symbols and words are decided once (`_Chart`); each renderer below only draws
them. Plotly and matplotlib are imported when used, so that the terminal picture stays cheap.
"""

import csv
import html
import io
import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from dashboards.page import figure_page
from search.front import Objective, non_dominated

if TYPE_CHECKING:
    import plotly.graph_objects as go

ACCURACY_LABEL = "validation accuracy, %"
COST_LABEL = "FLOPs, MixBin convention, % of FP"
EMPTY = "no finished trials yet"

# Okabe & Ito, colours that stay apart for colour-blind readers; darkest on white first.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
# (plotly, matplotlib). Nine symbols over seven colours: 63 methods before a pair repeats.
SYMBOLS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("cross", "P"),
    ("x", "X"),
    ("star", "*"),
    ("pentagon", "p"),
)
DOMINATED = "#A6A6A6"
INK = "#333333"
GRID = "#E6E6E6"

CSV_COLUMNS = ("trial", "method", "plan", "accuracy", "cost", "cost_pct", "on_front")

_AXES = (Objective("accuracy", maximize=True), Objective("cost", maximize=False))


@dataclass(frozen=True)
class FrontPoint:
    """One finished trial. Accuracy, or whatever quality the labels name, is a fraction;
    `cost_pct` is against the FP model."""

    trial: str
    method: str
    plan: str
    accuracy: float
    cost: float
    cost_pct: float | None
    on_front: bool
    extra: dict[str, str] = field(default_factory=dict)


class Labels(TypedDict, total=False):
    """The optional words of a figure; `reference` is (accuracy, cost in the unit of the x axis)."""

    accuracy_label: str
    cost_label: str
    reference: tuple[float, float] | None


class _Style(NamedTuple):
    color: str
    plotly_symbol: str
    matplotlib_marker: str


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
    styles: dict[str, _Style]
    marker_size: int
    steps: list[tuple[float, float]]  # corners of the front: best accuracy within each cost
    reference: tuple[float | None, float | None]  # (x, y) of its lines, None where out of view


def front_figure(
    points: Sequence[FrontPoint],
    title: str,
    accuracy_label: str = ACCURACY_LABEL,
    cost_label: str = COST_LABEL,
    reference: tuple[float, float] | None = None,
) -> "go.Figure":
    """The front as an interactive Plotly figure.

    `reference` (accuracy, cost in the unit of the x axis) adds the dotted lines of the
    hypervolume's reference point where they fall within the view; it never stretches the axes.
    """
    import plotly.graph_objects as go

    chart = _chart(points, accuracy_label, cost_label, reference)
    figure = go.Figure()

    def scatter(dots: list[_Dot], name: str, marker: dict[str, object]) -> None:
        figure.add_scatter(
            x=[dot.x for dot in dots],
            y=[dot.y for dot in dots],
            mode="markers",
            name=_markup(name),
            marker=marker,
            hovertext=[_hover(dot.point, accuracy_label) for dot in dots],
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
        style = chart.styles[method]
        marker = {
            "color": style.color,
            "symbol": style.plotly_symbol,
            "size": chart.marker_size,
            "line": {"color": INK, "width": 1},
        }
        scatter(dots, method, marker)
    x, y = chart.reference
    line = {"line": {"color": INK, "width": 1, "dash": "dot"}, "layer": "below"}
    legend = {"name": "reference", "showlegend": True}
    if x is not None:
        figure.add_vline(x=x, **line, **legend)
    if y is not None:
        figure.add_hline(y=y, **line, **(legend if x is None else {}))
    if not chart.steps and not chart.dominated:
        figure.add_annotation(text=EMPTY, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)

    axis = {"automargin": True, "gridcolor": GRID, "linecolor": INK, "zeroline": False}
    figure.update_layout(
        template="plotly_white",
        height=560,
        title={
            "text": _markup(title, 40),
            "font": {"size": 16},
            "yref": "container",
            "automargin": True,
        },
        font={"size": 13, "color": INK},
        margin={"l": 8, "r": 16, "t": 24, "b": 8},
        hoverlabel={"align": "left", "font": {"size": 12}, "namelength": -1},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
        showlegend=bool(chart.steps or chart.dominated),
        xaxis={**axis, "title": {"text": chart.x_label, "standoff": 8}, "range": chart.x_range},
        yaxis={**axis, "title": {"text": chart.y_label, "standoff": 8}, "range": chart.y_range},
    )
    return figure


def front_html(points: Sequence[FrontPoint], title: str, **labels: Unpack[Labels]) -> str:
    """The figure as one page that needs no network."""
    figure = front_figure(points, title, **labels)
    return figure_page(figure, title, "front")


def front_png(
    points: Sequence[FrontPoint], title: str, path: str | Path, **labels: Unpack[Labels]
) -> Path:
    """The same picture as a PNG, 800 x 560 at twice the density.

    Drawn by matplotlib, because Plotly's static export needs a browser.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chart = _chart(
        points,
        labels.get("accuracy_label", ACCURACY_LABEL),
        labels.get("cost_label", COST_LABEL),
        labels.get("reference"),
    )
    figure = Figure(figsize=(8, 5.6), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
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
        style = chart.styles[method]
        handles += axes.plot(
            [dot.x for dot in dots], [dot.y for dot in dots], style.matplotlib_marker,
            color=style.color, markersize=chart.marker_size, markeredgecolor=INK,
            markeredgewidth=0.8, label=method,
        )  # fmt: skip
    x, y = chart.reference
    dotted: dict[str, Any] = {"color": INK, "linestyle": ":", "zorder": 1, "label": "reference"}
    lines = [] if x is None else [axes.axvline(x, **dotted)]
    lines += [] if y is None else [axes.axhline(y, **dotted)]
    handles += lines[:1]

    axes.set_xlim(chart.x_range)
    axes.set_ylim(chart.y_range)
    # parse_math off: a dollar sign in a search's name is a dollar sign.
    words: dict[str, Any] = {"fontsize": 15, "color": INK, "parse_math": False}
    axes.set_title("\n".join(textwrap.wrap(title, 62)), **{**words, "fontsize": 17})
    axes.set_xlabel(chart.x_label, **words)
    axes.set_ylabel(chart.y_label, **words)
    axes.tick_params(labelsize=14, colors=INK)
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
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
        axes.text(0.5, 0.5, EMPTY, transform=axes.transAxes, ha="center", **words)
    path = Path(path)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def front_csv(points: Sequence[FrontPoint], quality: str = "accuracy") -> str:
    """All points as CSV text: the fixed columns, then every extra in alphabetical order."""
    extras = sorted({name for point in points for name in point.extra})
    if clash := set(extras) & set(CSV_COLUMNS):
        raise ValueError(f"extra {sorted(clash)} would repeat a column of the table")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(quality if c == "accuracy" else c for c in CSV_COLUMNS), *extras])
    for point in points:
        fixed = [getattr(point, name) for name in CSV_COLUMNS]  # None is written as nothing
        writer.writerow([*fixed, *(point.extra.get(name, "") for name in extras)])
    return text.getvalue()


def front_text(
    points: Sequence[FrontPoint],
    width: int = 72,
    height: int = 18,
    accuracy_label: str = ACCURACY_LABEL,
    cost_label: str = COST_LABEL,
) -> str:
    """A scatter of characters for the terminal: `height` lines, none longer than `width`."""
    chart = _chart(points, accuracy_label, cost_label, None, padding=0.0)
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


def _chart(
    points: Sequence[FrontPoint],
    accuracy_label: str,
    cost_label: str,
    reference: tuple[float, float] | None,
    padding: float = 0.06,
) -> _Chart:
    x_of, x_label = _cost_axis(points, cost_label)
    dots = [_Dot(x_of(point), 100 * point.accuracy, point) for point in points]
    dots = [dot for dot in dots if math.isfinite(dot.x) and math.isfinite(dot.y)]
    dots.sort(key=lambda dot: (dot.x, -dot.y, dot.point.trial))
    on_front = [dot for dot in dots if dot.point.on_front]
    front: dict[str, list[_Dot]] = {}
    for dot in sorted(on_front, key=lambda dot: dot.point.method):
        front.setdefault(dot.point.method, []).append(dot)
    x_range = _padded([dot.x for dot in dots], padding)
    y_range = _padded([dot.y for dot in dots], padding)
    visible_x = visible_y = None
    if reference is not None:
        y, x = 100 * reference[0], reference[1]
        visible_x = x if x_range[0] <= x <= x_range[1] else None
        visible_y = y if y_range[0] <= y <= y_range[1] else None
    return _Chart(
        x_label=x_label,
        y_label=accuracy_label,
        x_range=x_range,
        y_range=y_range,
        dominated=[dot for dot in dots if not dot.point.on_front],
        front=front,
        styles={
            method: _Style(PALETTE[i % len(PALETTE)], *SYMBOLS[i % len(SYMBOLS)])
            # All methods, by name: one keeps its look while the front changes.
            for i, method in enumerate(sorted({point.method for point in points}))
        },
        marker_size=10 if len(on_front) <= 25 else 8,
        steps=_steps(on_front, x_range[1]),
        reference=(visible_x, visible_y),
    )


def _cost_axis(
    points: Sequence[FrontPoint], cost_label: str
) -> tuple[Callable[[FrontPoint], float], str]:
    """Percent of the FP model when every point knows it; otherwise the count itself, for all."""
    if all(point.cost_pct is not None for point in points):
        return lambda point: math.nan if point.cost_pct is None else point.cost_pct, cost_label
    return lambda point: point.cost, cost_label.removesuffix(", % of FP")


def _steps(dots: list[_Dot], right: float) -> list[tuple[float, float]]:
    """Corners of the staircase, held to the right edge: a larger budget still buys the last point.

    A front over more than these two objectives is not monotone here; its upper hull of steps is.
    """
    kept = [dots[i] for i in non_dominated([(dot.y, dot.x) for dot in dots], _AXES)]
    corners: list[tuple[float, float]] = []
    for dot in sorted(kept):
        if corners:
            corners.append((dot.x, corners[-1][1]))
        corners.append((dot.x, dot.y))
    if corners:
        corners.append((right, corners[-1][1]))
    return corners


def _padded(values: list[float], share: float) -> tuple[float, float]:
    """Range of an axis with room for the markers at its ends; never empty."""
    if not values:
        return 0.0, 100.0
    low, high = min(values), max(values)
    apart = high - low > 1e-12 * max(abs(low), abs(high), 1.0)
    pad = (high - low) * share if apart else max(abs(high) * 0.06, 1.0)
    return low - pad, high + pad


def _hover(point: FrontPoint, accuracy_label: str) -> str:
    rows = [
        ("method", point.method),
        ("plan", point.plan),
        (accuracy_label, f"{100 * point.accuracy:.2f}"),
        ("cost", f"{point.cost:,.0f}" if abs(point.cost) >= 1000 else f"{point.cost:g}"),
    ]
    if point.cost_pct is not None:
        rows.append(("cost, % of FP", f"{point.cost_pct:.2f}"))
    rows += sorted(point.extra.items())
    lines = [f"<b>{_markup(point.trial)}</b>"]
    lines += [_markup(f"{name}: {text}") for name, text in rows]
    return "<br>".join(lines)


def _markup(text: str, width: int = 44) -> str:
    """Plain text for Plotly, whose strings are a small HTML: escaped, and broken into lines."""
    return "<br>".join(html.escape(line, quote=False) for line in textwrap.wrap(text, width))


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
