"""The figures in the tabs of the live page: those of the report, for the trials that a filter
selects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.front.interactive import front_figure
from bitfront.dashboards.figures.front.pairs import pair_figures, pair_points
from bitfront.dashboards.figures.networks.layers import layers_figure
from bitfront.dashboards.figures.style import DOMINATED, axis, framed, look, markup, noted
from bitfront.dashboards.figures.trials.coordinates import coordinates_figure
from bitfront.dashboards.figures.trials.curves import curves_figure
from bitfront.dashboards.figures.trials.failures import failures_figure
from bitfront.dashboards.figures.trials.hypervolume import hypervolume_figure
from bitfront.dashboards.figures.trials.importance import importance_figure
from bitfront.dashboards.figures.trials.methods import methods_figure
from bitfront.dashboards.figures.trials.rungs import rungs_figure
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.points import Labels
from bitfront.search.results.view import SearchView, TrialView

if TYPE_CHECKING:
    import plotly.graph_objects as go

Importance = Callable[[], Mapping[str, float]]

# The most figures of any tab: every two of four objectives.
SLOTS = 6
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
STATES = (
    TrialState.COMPLETE,
    TrialState.STOPPED,
    TrialState.PAUSED,
    TrialState.RUNNING,
    TrialState.FAILED,
)


def tabs_of(view: SearchView) -> dict[str, str]:
    """The tabs that have something to show in this search, by name."""
    left_out = set()
    if len(view.objectives) < 3:
        left_out.add("pairs")
    if not view.counts[TrialState.FAILED]:
        left_out.add("failures")
    return {key: title for key, title in TABS.items() if key not in left_out}


def filtered(view: SearchView, methods: Collection[str], states: Collection[str]) -> SearchView:
    """The search with only the trials of these methods and states; an empty collection selects all.
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
    """The figures of a tab. `importance` is called only by the tab that shows it: it is slow."""
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
    """The front; with `stopped` also the trials that early stopping ended, at their last epoch."""
    labels: Labels = {**view.labels, "methods": view.methods}
    figure = front_figure(view.points, "", **labels)
    # A fixed range would undo the zoom of the user after every trial.
    figure.update_layout(xaxis={"range": None}, yaxis={"range": None})
    ended = [
        t
        for t in view.trials
        if t.state == TrialState.STOPPED and t.curve and view.cost.name in t.values
    ]
    if stopped and ended:
        figure.layout.annotations = [a for a in figure.layout.annotations if a.name]
        figure.add_scatter(
            x=[t.values[view.cost.name] for t in ended],
            y=[view.quality.shown(t.curve[-1][1]) for t in ended],
            customdata=[t.id for t in ended],
            mode="markers",
            name="stopped early, at its last epoch",
            marker={"color": DOMINATED, "symbol": "x", "size": 6},
            text=[markup(t.summary) for t in ended],
            hovertemplate="%{text}, stopped early: %{y:.4g}<extra></extra>",
        )
        figure.update_layout(showlegend=True)
    return figure


def curve_figure(view: SearchView, trial: TrialView) -> go.Figure:
    """The learning curve of one trial."""
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
