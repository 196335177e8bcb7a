"""The fronts of several searches in one picture, and the joint front of all. The page around it is
`dashboards.pages.comparison`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.front.chart import PERCENT, staircase
from bitfront.dashboards.figures.style import INK, axis, framed, look, markup, noted
from bitfront.search.front import Front, hypervolume_share
from bitfront.search.results.view import SearchView

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Overlay:
    """Searches with the same objectives, measured from one reference point."""

    views: Sequence[SearchView]

    @property
    def reference(self) -> list[float]:
        """The worst of the references in every objective, so that the points of all searches
        count."""
        objectives = self.views[0].front_objectives
        columns = zip(*(v.reference for v in self.views), strict=True)
        return [
            min(column) if o.maximize else max(column)
            for o, column in zip(objectives, columns, strict=True)
        ]

    def share(self, view: SearchView) -> float:
        """The hypervolume of one search, as a share of the common box."""
        values = [view.objective_values[key] for key in view.front]
        first = self.views[0]
        return hypervolume_share(values, self.reference, first.ideal, first.front_objectives)

    @cached_property
    def joint(self) -> list[tuple[int, str]]:
        """(index of the search, trial) of every point of the joint front, the cheapest first."""
        front = Front(self.views[0].front_objectives)
        for i, view in enumerate(self.views):
            for key in view.front:
                front.add(f"{i}/{key}", view.objective_values[key])
        return [(int(i), key) for i, _, key in (k.partition("/") for k in front.keys)]

    def contributed(self, index: int) -> list[str]:
        """The trials of one search on the joint front."""
        return [key for i, key in self.joint if i == index]

    @property
    def in_percent(self) -> bool:
        """Whether the cost is shown in percent: only where the percentages of all searches are of
        the same network."""
        same = len({view.full_flops for view in self.views}) == 1
        return same and all(view.cost.name == "flops_pct" for view in self.views)

    def sentence(self) -> str:
        """The differences in hypervolume and the shares in the joint front, in words."""
        first, *others = self.views
        parts = []
        for view in others:
            gain = 100 * (self.share(view) - self.share(first))
            parts.append(f"{view.name} has {gain:+.2f} points of hypervolume against {first.name}")
        gains = "; ".join(parts)
        shares = ", ".join(f"{v.name} {len(self.contributed(i))}" for i, v in enumerate(self.views))
        return f"{gains}. Points on the joint front of {len(self.joint)}: {shares}."


def overlay_figure(overlay: Overlay, title: str) -> go.Figure:
    """The front of every search in its own colour; points of the joint front are filled."""
    import plotly.graph_objects as go

    figure = go.Figure()
    views = overlay.views
    for i, view in enumerate(views):
        colour, symbol, _ = look(i)
        joint = set(overlay.contributed(i))
        points = {p.trial: p for p in view.points}
        front = [points[key] for key in view.front if key in points]
        xs = [
            p.cost_pct if overlay.in_percent and p.cost_pct is not None else p.cost for p in front
        ]
        ys = [view.quality.shown(p.accuracy) for p in front]
        corners = staircase(list(zip(xs, ys, strict=True)), view.quality.maximize)
        figure.add_scatter(
            x=[x for x, _ in corners], y=[y for _, y in corners], mode="lines",
            line={"color": colour, "width": 1.5}, hoverinfo="skip", showlegend=False,
            legendgroup=view.name,
        )  # fmt: skip
        for member, word in ((True, "on the joint front"), (False, "beaten by the other")):
            chosen = [k for k, p in enumerate(front) if (p.trial in joint) is member]
            if not chosen:
                continue
            figure.add_scatter(
                x=[xs[k] for k in chosen],
                y=[ys[k] for k in chosen],
                mode="markers",
                name=markup(f"{view.name}: {len(chosen)} {word}"),
                legendgroup=view.name,
                marker={
                    "color": colour,
                    "symbol": symbol if member else f"{symbol}-open",
                    "size": 10,
                    "line": {"color": INK if member else colour, "width": 1.5},
                },
                customdata=[front[k].trial for k in chosen],
                hovertext=[markup(f"{view.name} {front[k].summary}") for k in chosen],
                hovertemplate="%{hovertext}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
            )
    if not figure.data:
        noted(figure, "no finished trials yet")
    first = views[0]
    cost = first.cost.label if overlay.in_percent else first.cost.label.partition(PERCENT)[0]
    return framed(figure, title, height=560, xaxis=axis(cost), yaxis=axis(first.quality.label))
