"""Learning curves: the quality of trials over epochs. Those of pruned networks, as files, are in
`drops`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.style import (
    DOMINATED,
    axis,
    framed,
    look,
    markup,
    noted,
)
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView

if TYPE_CHECKING:
    import plotly.graph_objects as go

EMPTY = "no learning curves yet"
# Of the trials that are not on the front, and of those that are: more curves hide each other.
MOST_GREY = 150
MOST_FRONT = 40


def spread_out(trials: Sequence[TrialView], most: int) -> list[TrialView]:
    """At most `most` of the trials, evenly spaced in their order."""
    if len(trials) <= most:
        return list(trials)
    return [trials[i * len(trials) // most] for i in range(most)]


def curves_figure(view: SearchView, title: str) -> go.Figure:
    """Quality over epochs: trials of the front in the colours of their methods, a sample of the
    others in grey."""
    import plotly.graph_objects as go

    figure = go.Figure()
    curves = {t.id: curve for t in view.trials if (curve := view.curve_of(t))}
    with_curves = [t for t in view.trials if t.id in curves]
    running = [t for t in with_curves if t.state == TrialState.RUNNING][:MOST_FRONT]
    others = spread_out(
        [t for t in with_curves if t.id not in view.on_front and t not in running], MOST_GREY
    )
    if others:
        x: list[int | None] = []
        y: list[float | None] = []
        ids: list[str | None] = []
        for trial in others:
            x += [*(epoch for epoch, _ in curves[trial.id]), None]
            y += [*(view.quality.shown(value) for _, value in curves[trial.id]), None]
            ids += [*([trial.id] * len(curves[trial.id])), None]
        figure.add_scatter(
            x=x, y=y, customdata=ids, mode="lines", name="others", opacity=0.35,
            line={"color": DOMINATED, "width": 1}, hoverinfo="skip",
        )  # fmt: skip
    seen: set[str] = set()
    front = spread_out([t for t in with_curves if t.id in view.on_front], MOST_FRONT)
    for trial in sorted(front, key=lambda t: t.method):
        colour, symbol, _ = look(view.methods.index(trial.method))
        figure.add_scatter(
            x=[epoch for epoch, _ in trial.curve],
            y=[view.quality.shown(value) for _, value in trial.curve],
            customdata=[trial.id] * len(trial.curve),
            mode="lines+markers",
            name=markup(trial.method),
            legendgroup=trial.method,
            showlegend=trial.method not in seen,
            line={"color": colour, "width": 1.5},
            marker={"symbol": symbol, "size": 5},
            hovertemplate=f"{markup(trial.summary)}, epoch %{{x}}: %{{y:.4g}}<extra></extra>",
        )
        seen.add(trial.method)
    _add_running(figure, view, running)
    if not with_curves:
        noted(figure, EMPTY)
    return framed(figure, title, xaxis=axis("epoch"), yaxis=axis(view.quality.label))


def _add_running(figure: go.Figure, view: SearchView, running: Sequence[TrialView]) -> None:
    """The curves of running trials, as far as they have come."""
    for trial in running:
        curve = view.curve_of(trial)
        figure.add_scatter(
            x=[epoch for epoch, _ in curve],
            y=[view.quality.shown(value) for _, value in curve],
            customdata=[trial.id] * len(curve),
            mode="lines+markers",
            name="running",
            legendgroup="running",
            showlegend=trial is running[0],
            line={"color": look(view.methods.index(trial.method))[0], "width": 2.5, "dash": "dot"},
            marker={"size": 5},
            hovertemplate=f"{markup(trial.summary)}, running, epoch %{{x}}: %{{y:.4g}}"
            "<extra></extra>",
        )
