"""The front as an interactive figure and as a page of its own (Plotly, imported when used). What is
drawn is decided in `chart`."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from bitfront.dashboards.figures.front.baseline import NAME
from bitfront.dashboards.figures.front.chart import (
    DIM,
    EMPTY,
    PERCENT,
    Chart,
    Dot,
    chart_of,
    ticks,
)
from bitfront.dashboards.figures.style import (
    BUDGET,
    DOMINATED,
    GRID,
    INK,
    PALE,
    PAPER,
    axis,
    framed,
    markup,
    noted,
)
from bitfront.dashboards.pages.page import page, placed
from bitfront.search.results.points import FrontPoint, Labels

if TYPE_CHECKING:
    import plotly.graph_objects as go


def front_figure(points: Sequence[FrontPoint], title: str, **labels: Unpack[Labels]) -> go.Figure:
    """The front as an interactive figure; `customdata` of a point is the id of its trial. Reference
    and budgets are drawn as lines where they lie within the axes, which the points alone decide. A
    logarithmic cost axis has buttons that switch it."""
    import plotly.graph_objects as go

    chart = chart_of(points, labels)
    figure = go.Figure()
    _add_dominated(figure, chart)
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
        bars = _bars(dots, chart)
        if bars is not None:
            bars["color"] = colour
        _add_dots(figure, dots, chart, marker=marker, name=markup(method), error_y=bars)
    _add_baseline(figure, chart)
    _add_lines(figure, chart)
    if not chart.steps and not chart.dominated:
        noted(figure, EMPTY)
    low, high = (chart.place(x) for x in chart.x_range)
    framed(
        figure,
        title,
        height=560,
        showlegend=bool(chart.steps or chart.dominated),
        xaxis=axis(chart.x_label, range=(low, high)),
        yaxis=axis(chart.y_label, range=chart.y_range),
    )
    if chart.claim:
        _add_claim(figure, chart, title)
    if chart.log:
        _add_switch(figure, chart, top=not labels.get("maximize", True))
    return figure


def _add_dots(figure: go.Figure, dots: list[Dot], chart: Chart, **more: object) -> None:
    figure.add_scatter(
        x=[dot.x for dot in dots],
        y=[dot.y for dot in dots],
        mode="markers",
        customdata=[dot.point.trial for dot in dots],
        hovertext=[_hover(dot, chart) for dot in dots],
        hovertemplate="%{hovertext}<extra></extra>",
        **more,
    )


def _add_dominated(figure: go.Figure, chart: Chart) -> None:
    """The dominated points, smaller and paler, in the colour and symbol of their method."""
    for method, dots in chart.dominated.items():
        colour, symbol, _ = chart.styles[method]
        _add_dots(
            figure, dots, chart, name=markup(method), showlegend=method not in chart.front,
            marker={"color": colour, "symbol": symbol, "size": 6, "opacity": PALE},
        )  # fmt: skip
    if chart.dominated:
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=DIM, hoverinfo="skip",
            marker={"color": DOMINATED, "size": 6, "opacity": 0.7},
        )  # fmt: skip


def _bars(dots: list[Dot], chart: Chart) -> dict[str, object] | None:
    """Bars of a standard deviation over a point's seeds, up and down; None without any."""
    spreads = [chart.scale * (dot.point.spread or 0.0) for dot in dots]
    if not any(spreads):
        return None
    return {"type": "data", "array": spreads, "thickness": 1.2, "width": 4}


def _add_baseline(figure: go.Figure, chart: Chart) -> None:
    """A ring around the network in full precision, and a line at its quality."""
    if chart.baseline is None:
        return
    figure.add_scatter(
        x=[chart.baseline.x], y=[chart.baseline.y], mode="markers", name=NAME, hoverinfo="skip",
        marker={"symbol": "circle-open", "size": 19, "color": INK, "line": {"width": 2}},
    )  # fmt: skip
    line = {"color": INK, "width": 1, "dash": "dashdot"}
    figure.add_hline(y=chart.baseline.y, line=line, layer="below", opacity=0.6)


def _add_claim(figure: go.Figure, chart: Chart, title: str) -> None:
    """Write what the front keeps of the baseline above the plot, left of Plotly's buttons."""
    lines = "<br>".join(map(markup, chart.claim.replace("; ", ";\n").split("\n")))
    above = 20 * (lines.count("<br>") + 1)
    name_lines = markup(title, 40).count("<br>") + 1 if title else 0
    figure.add_annotation(
        name=NAME, text=lines, showarrow=False, align="left", font={"size": 14},
        x=0, xref="paper", xanchor="left", y=1, yref="paper", yanchor="bottom",
    )  # fmt: skip
    # As much as a title needs is added to the margin by hand: its own would cover the claim.
    figure.update_layout(
        margin_t=14 + above + 24 * name_lines,
        title={"automargin": False, "y": 0.98, "yanchor": "top"},
    )


def _add_switch(figure: go.Figure, chart: Chart, top: bool) -> None:
    """Make the cost axis logarithmic, and add buttons that switch it, in the corner where points
    are worst."""
    values, texts = zip(*ticks(*chart.x_range), strict=True)
    figure.update_xaxes(type="log", tickmode="array", tickvals=values, ticktext=texts)

    def button(kind: str, mode: str) -> dict[str, object]:
        to = {"xaxis.type": kind, "xaxis.tickmode": mode, "xaxis.autorange": True}
        return {"label": kind, "method": "relayout", "args": [to]}

    figure.update_layout(
        updatemenus=[
            {
                "type": "buttons",
                "direction": "right",
                "buttons": [button("log", "array"), button("linear", "auto")],
                "showactive": False,
                "x": 1,
                "xanchor": "right",
                "y": int(top),
                "yanchor": "top" if top else "bottom",
                "pad": {"t": 4, "b": 4, "r": 4},
                "bgcolor": PAPER,
                "bordercolor": GRID,
                "font": {"size": 11, "color": INK},
            }
        ]
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
        # A label of the line, not an annotation: those count in decades on a logarithmic axis.
        figure.add_vline(
            x=value,
            line={"color": BUDGET, "width": 1.5, "dash": "dash"},
            layer="below",
            label={
                "text": markup(name), "font": {"size": 11, "color": BUDGET}, "textangle": -90,
                "textposition": "end", "xanchor": "right", "yanchor": "bottom",
            },
        )  # fmt: skip


def front_html(points: Sequence[FrontPoint], title: str, **labels: Unpack[Labels]) -> str:
    """The front as a page that works offline."""
    heading = f"<h1>{html.escape(title)}</h1>\n"
    return page(title, heading + placed(front_figure(points, "", **labels), "front"))


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
    if chart.baseline is not None and point is not chart.baseline.point and point.cost >= 0:
        than = chart.baseline.point
        rows.append(
            (
                f"beside {NAME}",
                f"{dot.y - chart.baseline.y:+.2f}, "
                f"{100 * point.cost / than.cost:.3g} % of its cost",
            )
        )
    extra = dict(point.extra)
    if point.spread is not None:
        extra["spread"] = f"{chart.scale * point.spread:{'.2f' if chart.scale > 1 else '.4g'}}"
    rows += sorted(extra.items())
    lines = [f"<b>{markup(point.trial)}</b>"]
    lines += [markup(f"{name}: {text}") for name, text in rows]
    return "<br>".join(lines)
