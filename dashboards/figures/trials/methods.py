"""The finished points of every method, with the best one marked. Fronts are drawn in
`figures.front`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.dashboards.figures.style import DOMINATED, INK, axis, framed, look, markup, noted
from bitfront.search.results.points import FrontPoint
from bitfront.search.results.view import SearchView

if TYPE_CHECKING:
    import plotly.graph_objects as go

EMPTY = "no finished trials yet"


def best_points(view: SearchView) -> list[FrontPoint]:
    """The point with the best quality of every method, the best method first."""
    sign = -1 if view.quality.maximize else 1
    best: dict[str, FrontPoint] = {}
    for point in view.points:
        known = best.get(point.method)
        if known is None or sign * point.accuracy < sign * known.accuracy:
            best[point.method] = point
    return sorted(best.values(), key=lambda p: sign * p.accuracy)


def methods_figure(view: SearchView, title: str) -> go.Figure:
    """A row per method: its finished points as dots, the best one marked."""
    import plotly.graph_objects as go

    figure = go.Figure()
    best = best_points(view)
    names = [markup(point.method, 18) for point in best]
    for point, name in zip(best, names, strict=True):
        own = [p for p in view.points if p.method == point.method]
        colour, symbol, _ = look(view.methods.index(point.method))
        figure.add_scatter(
            x=[view.quality.shown(p.accuracy) for p in own],
            y=[name] * len(own),
            customdata=[p.trial for p in own],
            mode="markers",
            marker={"color": DOMINATED, "size": 6, "opacity": 0.6},
            text=[markup(p.summary) for p in own],
            hovertemplate="%{text}: %{x:.4g}<extra></extra>",
            showlegend=False,
        )
        shown = view.quality.shown(point.accuracy)
        figure.add_scatter(
            x=[shown],
            y=[name],
            customdata=[point.trial],
            mode="markers+text",
            marker={"color": colour, "symbol": symbol, "size": 12,
                    "line": {"color": INK, "width": 1}},
            text=[view.quality.text(point.accuracy)],
            textposition="top center",
            hovertemplate=f"best: {markup(point.summary)}, %{{x:.4g}}<extra></extra>",
            showlegend=False,
            cliponaxis=False,
        )  # fmt: skip
    if not best:
        noted(figure, EMPTY)
    return framed(
        figure,
        title,
        height=150 + 48 * max(1, len(best)),
        xaxis=axis(view.quality.label),
        yaxis=axis("", type="category", categoryorder="array", categoryarray=names[::-1]),
    )
