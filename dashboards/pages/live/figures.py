"""The figures in the tabs of the live page: those of the report, for the trials that a filter
selects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.front.interactive import front_figure
from bitfront.dashboards.figures.front.overlay import Overlay, overlay_figure
from bitfront.dashboards.figures.front.pairs import pair_figures, pair_points
from bitfront.dashboards.figures.networks.layers import layers_figure
from bitfront.dashboards.figures.style import DOMINATED, axis, framed, look, markup, noted
from bitfront.dashboards.figures.trials.contour import contour_figure, numeric
from bitfront.dashboards.figures.trials.coordinates import coordinates_figure
from bitfront.dashboards.figures.trials.curves import curves_figure
from bitfront.dashboards.figures.trials.effects import effects_figure
from bitfront.dashboards.figures.trials.failures import failures_figure
from bitfront.dashboards.figures.trials.hypervolume import hypervolume_figure
from bitfront.dashboards.figures.trials.importance import importance_figure
from bitfront.dashboards.figures.trials.methods import methods_figure
from bitfront.dashboards.figures.trials.rungs import rungs_figure
from bitfront.dashboards.figures.trials.slices import slice_figures
from bitfront.dashboards.figures.trials.timeline import timeline_figure
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.points import Labels
from bitfront.search.results.view import SearchView, TrialView

if TYPE_CHECKING:
    import plotly.graph_objects as go

Importance = Callable[[], Mapping[str, float] | None]

# The most figures of any tab: every two of four objectives.
SLOTS = 6
TABS = {
    "front": "Front",
    "trials": "Trials",
    "pairs": "Objectives",
    "layers": "Layers",
    "curves": "Curves",
    "settings": "Settings",
    "slices": "Slices",
    "contour": "Contour",
    "hypervolume": "Growth",
    "timeline": "Timeline",
    "methods": "Methods",
    "failures": "Failures",
    "compare": "Compare",
}
# Tabs whose figures stand side by side where there is room.
SMALL = ("slices",)
# The title of the figure below the layers of the front.
EFFECTS = "What it does to make a layer binary, other things being equal"
# Tabs that change with every epoch.
GROWING = ("curves", "trials", "timeline")
STATES = (
    TrialState.COMPLETE,
    TrialState.STOPPED,
    TrialState.PAUSED,
    TrialState.RUNNING,
    TrialState.FAILED,
)


def tabs_of(view: SearchView, others: Collection[str] = ()) -> dict[str, str]:
    """The tabs that have something to show in this search, by name; `others` are searches it is
    compared with."""
    left_out = set() if others else {"compare"}
    if not any(trial.settings for trial in view.trials):
        left_out |= {"slices", "contour"}
    if len(view.methods) < 2:
        left_out.add("methods")
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
        return [layers_figure(view, ""), effects_figure(view, EFFECTS)]
    if tab == "slices":
        found = list(slice_figures(view, importance() or {}).values())
        return found or [contour_figure(view, None, None, "")]
    if tab == "timeline":
        return [timeline_figure(view, "")]
    if tab == "methods":
        return [methods_figure(view, "")]
    if tab == "curves":
        rungs = [rungs_figure(view, "")] if view.rungs else []
        return [curves_figure(view, ""), *rungs]
    if tab == "settings":
        return [coordinates_figure(view, ""), _importances(importance())]
    if tab == "failures":
        return [failures_figure(view, "")]
    return []


def _importances(shares: Mapping[str, float] | None) -> go.Figure:
    """The importance of the settings, which may be known later."""
    if shares is not None:
        return importance_figure(shares, "")
    import plotly.graph_objects as go

    figure = go.Figure()
    noted(figure, "the importance of the settings is being estimated …")
    return framed(figure, "", height=200)


def contour_of(
    view: SearchView, x: str | None, y: str | None, importance: Importance
) -> tuple[go.Figure, list[str], str | None, str | None]:
    """The picture over two settings, the settings there are, and the two that are shown: those
    asked for, else the most important ones."""
    names = numeric(view, importance() or {})
    first = x if x in names else next((n for n in names if n != y), None)
    second = y if y in names and y != first else next((n for n in names if n != first), None)
    return contour_figure(view, first, second, ""), names, first, second


def compared_figures(views: Sequence[SearchView]) -> list[go.Figure]:
    """The fronts of several searches over one another, and how each grew."""
    growth = hypervolume_figure(views, "", "trials")
    return [overlay_figure(Overlay(views), ""), growth]


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
    curve = view.curve_of(trial)
    if curve:
        figure.add_scatter(
            x=[epoch for epoch, _ in curve],
            y=[view.quality.shown(value) for _, value in curve],
            mode="lines+markers",
            line={"color": look(view.methods.index(trial.method))[0]},
            marker={"size": 5},
            hovertemplate="epoch %{x}: %{y:.4g}<extra></extra>",
        )
    else:
        noted(
            figure,
            "no epoch has ended yet" if trial.state == TrialState.RUNNING else "no curve",
        )
    return framed(
        figure,
        "",
        height=240,
        showlegend=False,
        xaxis=axis("epoch"),
        yaxis=axis(view.quality.label),
    )
