"""When every trial was trained, and how many at once: bars over time in as few rows as they fit in.
Pauses between turns are left out."""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.style import DOMINATED, INK, PALETTE, axis, framed, markup, noted
from bitfront.search.durations import duration
from bitfront.search.ledger.states import TrialState
from bitfront.search.live.busy import BusyClock, span
from bitfront.search.results.view import SearchView, TrialView

if TYPE_CHECKING:
    import plotly.graph_objects as go

EMPTY = "no trial has ended yet"
COLOURS = {
    TrialState.COMPLETE: PALETTE[0],
    TrialState.STOPPED: PALETTE[4],
    TrialState.PAUSED: PALETTE[5],
    TrialState.RUNNING: PALETTE[2],
    TrialState.FAILED: PALETTE[1],
}
UNITS = ((2 * 3600.0, 3600.0, "hours"), (2 * 60.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
MOST_BARS = 3000


def timeline_figure(view: SearchView, title: str) -> go.Figure:
    """A bar per trial in the colour of its state; dotted lines are pauses that were left out."""
    import plotly.graph_objects as go

    figure = go.Figure()
    spans = [(found, t) for t in view.trials if (found := _span(view, t)) is not None]
    spans.sort(key=lambda each: each[0])
    clock = BusyClock(found for found, _ in spans)
    unit, name = next((u, n) for least, u, n in UNITS if clock.total >= least)
    rows: dict[TrialState, list[tuple[float, float, int, TrialView]]] = {}
    free: list[tuple[float, int]] = []
    lanes = 0
    for (began, ended), trial in spans[-MOST_BARS:]:
        begin, end = clock.at(began), clock.at(ended)
        if free and free[0][0] <= begin + 1e-9:
            lane = heapq.heappop(free)[1]
        else:
            lane, lanes = lanes, lanes + 1
        heapq.heappush(free, (end, lane))
        rows.setdefault(trial.state, []).append((begin / unit, end / unit, lane + 1, trial))
    for state in (s for s in COLOURS if s in rows):
        _add_bars(figure, state, rows[state])
    for gap in clock.gaps:
        figure.add_vline(x=gap / unit, line={"color": INK, "width": 1, "dash": "dot"})
    if not rows:
        noted(figure, EMPTY)
    left_out = f", {len(clock.gaps)} pauses left out (dotted)" if clock.gaps else ""
    return framed(
        figure,
        title,
        height=min(520, 170 + 16 * max(lanes, 2)),
        barmode="overlay",
        xaxis=axis(f"{name} of the search{left_out}", rangemode="tozero"),
        yaxis=axis("trials at once", autorange="reversed", dtick=max(1, lanes // 8), tick0=1),
    )


def _span(view: SearchView, trial: TrialView) -> tuple[float, float] | None:
    if trial.state == TrialState.RUNNING and trial.started is not None:
        return (trial.started, time.time()) if view.state == "running" else None
    return span(trial.started, trial.ended, trial.seconds)


def _add_bars(
    figure: go.Figure, state: TrialState, rows: list[tuple[float, float, int, TrialView]]
) -> None:
    figure.add_bar(
        base=[begin for begin, _, _, _ in rows],
        x=[end - begin for begin, end, _, _ in rows],
        y=[lane for _, _, lane, _ in rows],
        orientation="h",
        width=0.8,
        name=str(state),
        marker={"color": COLOURS.get(state, DOMINATED), "line": {"width": 0}},
        customdata=[trial.id for *_, trial in rows],
        hovertext=[
            markup(f"{t.summary}: {state}, {duration(t.seconds) if t.seconds else 'not ended'}")
            for *_, t in rows
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )
