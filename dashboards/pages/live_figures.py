"""What the tabs of the live page show: the figures of the report, of the trials that a filter
leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.curves import curves_figure, rungs_figure
from bitfront.dashboards.figures.failures import failures_figure
from bitfront.dashboards.figures.front import Labels, front_figure
from bitfront.dashboards.figures.hypervolume import hypervolume_figure
from bitfront.dashboards.figures.importance import importance_figure
from bitfront.dashboards.figures.layers import layers_figure
from bitfront.dashboards.figures.methods import coordinates_figure, methods_figure
from bitfront.dashboards.figures.pairs import pair_figures
from bitfront.dashboards.figures.style import DOMINATED, axis, framed, look, markup, noted
from bitfront.dashboards.pages.report import pair_points
from bitfront.dashboards.view import SearchView, TrialView
from bitfront.search.ledger.states import TrialState

if TYPE_CHECKING:
    import plotly.graph_objects as go

Importance = Callable[[], Mapping[str, float]]

TABS = {
    "front": "Front",
    "pairs": "Objectives",
    "hypervolume": "Hypervolume",
    "layers": "Layers",
    "methods": "Methods",
    "curves": "Curves",
    "settings": "Settings",
    "failures": "Failures",
    "trials": "Trials",
}
STATES = (TrialState.COMPLETE, TrialState.STOPPED, TrialState.RUNNING, TrialState.FAILED)


def tabs_of(view: SearchView) -> dict[str, str]:
    """Those that have something to show in this search."""
    left_out = set()
    if len(view.objectives) < 3:
        left_out.add("pairs")
    if not view.counts[TrialState.FAILED]:
        left_out.add("failures")
    return {key: title for key, title in TABS.items() if key not in left_out}


def filtered(view: SearchView, methods: Collection[str], states: Collection[str]) -> SearchView:
    """The same search with trials of these methods and states only; of all where none is named.
    Methods keep their colours."""
    if not methods and not states:
        return view
    kept = [
        t
        for t in view.trials
        if (not methods or t.method in methods) and (not states or t.state in states)
    ]
    ids = {t.id for t in kept}
    return replace(
        view,
        trials=kept,
        points=[p for p in view.points if p.trial in ids],
        front=[key for key in view.front if key in ids],
        objective_values={k: v for k, v in view.objective_values.items() if k in ids},
        all_methods=view.methods,
    )


def tab_figures(
    tab: str, view: SearchView, states: Collection[str], importance: Importance
) -> list[go.Figure]:
    """`importance` is asked for only where it is shown: it takes a moment."""
    if tab == "front":
        return [live_front(view, stopped=TrialState.STOPPED in states)]
    if tab == "pairs":
        labels = [objective.label for objective in view.objectives]
        return list(pair_figures(pair_points(view), labels).values())
    if tab == "hypervolume":
        return [hypervolume_figure([view], "", "trials"), hypervolume_figure([view], "", "time")]
    if tab == "layers":
        return [layers_figure(view, "")]
    if tab == "methods":
        return [methods_figure(view, "")]
    if tab == "curves":
        rungs = [rungs_figure(view, "")] if view.rungs else []
        return [curves_figure(view, ""), *rungs]
    if tab == "settings":
        return [coordinates_figure(view, ""), importance_figure(importance(), "")]
    if tab == "failures":
        return [failures_figure(view, "")]
    return []


def live_front(view: SearchView, stopped: bool) -> go.Figure:
    """The front; with `stopped` also where trials were that did not come to their end."""
    labels: Labels = {**view.labels, "methods": view.methods}
    figure = front_figure(view.points, "", **labels)
    # A range that changes with every trial would undo a zoom.
    figure.update_layout(xaxis={"range": None}, yaxis={"range": None})
    ended = [
        t
        for t in view.trials
        if t.state == TrialState.STOPPED and t.curve and view.cost.name in t.values
    ]
    if stopped and ended:
        figure.layout.annotations = ()
        figure.add_scatter(
            x=[t.values[view.cost.name] for t in ended],
            y=[view.quality.shown(t.curve[-1][1]) for t in ended],
            customdata=[t.id for t in ended],
            mode="markers",
            name="stopped early, at its last epoch",
            marker={"color": DOMINATED, "symbol": "x", "size": 6},
            text=[markup(t.told) for t in ended],
            hovertemplate="%{text}, stopped early: %{y:.4g}<extra></extra>",
        )
        figure.update_layout(showlegend=True)
    return figure


def curve_figure(view: SearchView, trial: TrialView) -> go.Figure:
    """How one trial learned."""
    import plotly.graph_objects as go

    figure = go.Figure()
    if trial.curve:
        figure.add_scatter(
            x=[epoch for epoch, _ in trial.curve],
            y=[view.quality.shown(value) for _, value in trial.curve],
            mode="lines+markers",
            line={"color": look(view.methods.index(trial.method))[0]},
            marker={"size": 5},
            hovertemplate="epoch %{x}: %{y:.4g}<extra></extra>",
        )
    else:
        noted(
            figure,
            "its curve comes when it ends" if trial.state == TrialState.RUNNING else "no curve",
        )
    return framed(
        figure,
        "",
        height=240,
        showlegend=False,
        xaxis=axis("epoch"),
        yaxis=axis(view.quality.label),
    )
