"""The front as an interactive figure and as a page of its own (Plotly, imported when used). What is
drawn is decided in `chart`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from bitfront.dashboards.figures.front.chart import EMPTY, PERCENT, Chart, Dot, chart_of
from bitfront.dashboards.figures.style import (
    BUDGET,
    DOMINATED,
    INK,
    axis,
    framed,
    markup,
    noted,
)
from bitfront.dashboards.pages.page import figure_page
from bitfront.search.results.points import FrontPoint, Labels

if TYPE_CHECKING:
    import plotly.graph_objects as go


def front_figure(points: Sequence[FrontPoint], title: str, **labels: Unpack[Labels]) -> go.Figure:
    """The front as an interactive figure; `customdata` of a point is the id of its trial. Reference
    and budgets are drawn as lines where they lie within the axes, which the points alone decide."""
    import plotly.graph_objects as go

    chart = chart_of(points, labels)
    figure = go.Figure()

    def scatter(dots: list[Dot], name: str, marker: dict[str, object]) -> None:
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
    _add_lines(figure, chart)
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


def _add_lines(figure: go.Figure, chart: Chart) -> None:
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
    """The front as a page that works offline."""
    return figure_page(front_figure(points, title, **labels), title, "front")


def _hover(dot: Dot, chart: Chart) -> str:
    """What is shown beside a point under the mouse."""
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
    extra = dict(point.extra)
    if point.spread is not None:
        extra["spread"] = f"{chart.scale * point.spread:{'.2f' if chart.scale > 1 else '.4g'}}"
    rows += sorted(extra.items())
    lines = [f"<b>{markup(point.trial)}</b>"]
    lines += [markup(f"{name}: {text}") for name, text in rows]
    return "<br>".join(lines)
