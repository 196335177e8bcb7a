"""Trials that failed: how many, of which method, for which reason. Reasons are given in
`search.cluster.watcher` and by the worker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.style import axis, framed, look, markup, noted
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView

if TYPE_CHECKING:
    import plotly.graph_objects as go

MEANINGS = {
    "nan": "a value became nan or infinite",
    "oom": "out of memory",
    "lost worker": "the worker died, more often than it may be started again",
    "hung": "no epoch ended within resources.report_within",
    "error": "an error in the trial",
}


@dataclass(frozen=True)
class Reason:
    """The failed trials of one reason, with the message of the last one."""

    name: str
    count: int
    trials: list[str]
    message: str


def reasons(view: SearchView) -> list[Reason]:
    """The reasons for which trials failed, the most frequent first."""
    failed = [t for t in view.trials if t.state == TrialState.FAILED]
    found = []
    for name, count in Counter(t.failure or "error" for t in failed).most_common():
        own = [t for t in failed if (t.failure or "error") == name]
        message = ((own[-1].message or "").strip().splitlines() or [""])[-1]
        found.append(Reason(name, count, [t.id for t in own], message))
    return found


def failures_figure(view: SearchView, title: str) -> go.Figure:
    """A bar per reason, divided by method."""
    import plotly.graph_objects as go

    figure = go.Figure()
    names = [reason.name for reason in reasons(view)]
    failed = [t for t in view.trials if t.state == TrialState.FAILED]
    for i, method in enumerate(view.methods):
        counts = Counter(t.failure or "error" for t in failed if t.method == method)
        if counts:
            figure.add_bar(
                y=[markup(n, 20) for n in names],
                x=[counts[n] for n in names],
                orientation="h",
                width=0.5,
                name=markup(method),
                marker_color=look(i)[0],
                hovertemplate=f"{markup(method)}: %{{x}} %{{y}}<extra></extra>",
            )
    if not names:
        noted(figure, "no trial failed")
    return framed(
        figure,
        title,
        height=190 + 34 * len(names),
        barmode="stack",
        xaxis=axis("failed trials", rangemode="tozero"),
        yaxis=axis("", type="category", autorange="reversed"),
        legend={"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
    )
