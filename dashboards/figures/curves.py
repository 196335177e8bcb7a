"""How trials learned: their curves, and how well an early look at them foretold the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.style import (
    DOMINATED,
    INK,
    SYMBOLS,
    axis,
    framed,
    look,
    markup,
    noted,
)
from bitfront.dashboards.view import SearchView, TrialView
from bitfront.search.ledger.states import TrialState

if TYPE_CHECKING:
    import plotly.graph_objects as go

EMPTY = "no learning curves yet"
# Curves of trials off the front are background; more of them hide each other.
MOST_GREY = 150
MOST_FRONT = 40
MOST_RUNG_POINTS = 1500


def spread_out(trials: Sequence[TrialView], most: int) -> list[TrialView]:
    """At most so many of them, evenly by number."""
    if len(trials) <= most:
        return list(trials)
    return [trials[i * len(trials) // most] for i in range(most)]


def curves_figure(view: SearchView, title: str) -> go.Figure:
    """Quality over epochs: the front's trials in the colours of their methods, a choice of the
    others in grey."""
    import plotly.graph_objects as go

    figure = go.Figure()
    with_curves = [t for t in view.trials if t.curve]
    others = spread_out([t for t in with_curves if t.id not in view.on_front], MOST_GREY)
    if others:
        x: list[int | None] = []
        y: list[float | None] = []
        ids: list[str | None] = []
        for trial in others:
            x += [*(epoch for epoch, _ in trial.curve), None]
            y += [*(view.quality.shown(value) for _, value in trial.curve), None]
            ids += [*([trial.id] * len(trial.curve)), None]
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
            hovertemplate=f"{markup(trial.told)}, epoch %{{x}}: %{{y:.4g}}<extra></extra>",
        )
        seen.add(trial.method)
    if not with_curves:
        noted(figure, EMPTY)
    return framed(figure, title, xaxis=axis("epoch"), yaxis=axis(view.quality.label))


def rungs_figure(view: SearchView, title: str) -> go.Figure:
    """Quality at a rung against quality at the end, of the trials that ran on: on a straight rising
    line the rung foretold the end. Trials that were stopped have no end to show."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for i, share in enumerate(view.rungs):
        finished = [
            t
            for t in view.trials
            if t.state == TrialState.COMPLETE and share in t.rungs and view.quality.name in t.values
        ]
        shown = spread_out(finished, MOST_RUNG_POINTS)
        for spared, name in ((False, "ran on"), (True, "control: would have stopped here")):
            chosen = [t for t in shown if (t.would_stop_at == share) is spared]
            if not chosen:
                continue
            colour, _, _ = look(i)
            figure.add_scatter(
                x=[view.quality.shown(t.rungs[share]) for t in chosen],
                y=[view.quality.shown(t.values[view.quality.name]) for t in chosen],
                customdata=[t.id for t in chosen],
                mode="markers",
                name=f"at {100 * share:g} %, {name}",
                marker={
                    "color": colour,
                    "symbol": "x" if spared else SYMBOLS[i % len(SYMBOLS)][0],
                    "size": 9 if spared else 6,
                    "opacity": 0.8,
                    "line": {"color": INK, "width": 1 if spared else 0},
                },
                text=[markup(t.told) for t in chosen],
                hovertemplate="%{text}: %{x:.4g} at the rung, %{y:.4g} at the end<extra></extra>",
            )
    if not figure.data:
        noted(figure, "no trial has passed a rung yet")
    return framed(
        figure,
        title,
        xaxis=axis(f"{view.quality.label}, at the rung"),
        yaxis=axis(f"{view.quality.label}, at the end"),
    )
