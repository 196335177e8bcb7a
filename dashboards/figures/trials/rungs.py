"""The quality at the rungs of early stopping against the quality at the end of training. The rule
itself is in `search.session.early_stopping`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.dashboards.figures.style import (
    INK,
    SYMBOLS,
    axis,
    framed,
    look,
    markup,
    noted,
)
from bitfront.dashboards.figures.trials.curves import spread_out
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView

if TYPE_CHECKING:
    import plotly.graph_objects as go


MOST_RUNG_POINTS = 1500


def rungs_figure(view: SearchView, title: str) -> go.Figure:
    """Quality at a rung against quality at the end, of the trials that were trained to the end. The
    closer the points are to a rising line, the better a rung predicts the end."""
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
                text=[markup(t.summary) for t in chosen],
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
