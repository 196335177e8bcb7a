"""The parts of the live page that change with a search, as Dash components: tiles, the table of
trials, the panel of one trial."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bitfront.dashboards.pages.insights import rules
from bitfront.dashboards.pages.source import Source
from bitfront.dashboards.pages.tiles import decided, tiles
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView
from bitfront.trainables.plan import LEVELS

MOST_ROWS = 40
# CSS classes of the table of trials: id, state, method, settings, quality, cost, time, plan.
COLUMNS = ("", "", "", "settings", "number", "number", "number", "letters")
HINT = "Click a point, a curve or a row: its plan, its curve and the command that exports it."


def search_options(source: Source) -> list[dict[str, str]]:
    """The choices of the list of searches."""
    return [{"value": each.name, "label": each.label} for each in source.searches()]


def options(titles: Mapping[str, str]) -> list[dict[str, str]]:
    """Choices of a Dash component, from value to title."""
    return [{"value": key, "label": title} for key, title in titles.items()]


def state_sentence(view: SearchView) -> str:
    """What is going on where there is no trial to show; else nothing."""
    if view.trials:
        return ""
    if view.state == "running":
        return "The search is starting: its first trial is being prepared."
    return "The search has no trial yet. Continue it: bitfront resume " + view.name


def search_tiles(view: SearchView) -> Any:
    """The search at a glance, with the number of running trials, and what is known of its model,
    its limits and its failures."""
    from dash import html

    shown = tiles(view)
    if view.counts[TrialState.RUNNING]:
        shown["running"] = str(view.counts["running"])
    numbers = html.Dl(
        [html.Div([html.Dt(name), html.Dd(text)]) for name, text in shown.items()],
        className="tiles",
    )
    told = [*decided(view), *view.limits, *(f"What fails: {text}." for text in view.failing)]
    return [numbers, *(html.P(text, className="faint") for text in told)]


def sentences(view: SearchView) -> Any:
    """What the front shows, in words."""
    from dash import html

    found = rules(view)
    return [html.H2("In words"), html.Ul([html.Li(r.sentence) for r in found])] if found else []


def trial_rows(view: SearchView) -> Any:
    """A table of the newest trials, running ones first."""
    from dash import html

    newest = sorted(view.trials, key=lambda t: (t.state != TrialState.RUNNING, -t.number))
    measured = [view.quality.short, view.cost.short]
    head = ["trial", "state", "method", "settings", *measured, "time", "plan"]
    rows = [
        html.Tr(
            [
                html.Td(text, className=kind)
                for text, kind in zip(trial_row(view, trial), COLUMNS, strict=True)
            ],
            id={"row": trial.id},
            className="trial",
        )
        for trial in newest[:MOST_ROWS]
    ]
    left = len(newest) - MOST_ROWS
    more = [html.P(f"and {left} older ones", className="faint")] if left > 0 else []
    table = html.Table([html.Thead(html.Tr([html.Th(h) for h in head])), html.Tbody(rows)])
    return [html.Div(table, className="scroll"), *more]


def trial_row(view: SearchView, trial: TrialView) -> list[str]:
    """The cells of a trial's row, in the order of `COLUMNS`."""
    quality = trial.values.get(view.quality.name)
    seconds = trial.seconds
    if trial.state == view.state == TrialState.RUNNING and trial.started is not None:
        seconds = time.time() - trial.started
    state = f"failed: {trial.failure}" if trial.failure else trial.state
    return [
        trial.id,
        state,
        trial.method,
        " ".join(f"{name}={text}" for name, text in trial.settings.items()),
        view.quality.text(quality),
        view.cost.text(trial.values.get(view.cost.name)),
        "-" if seconds is None else f"{seconds:.0f} s",
        trial.plan if len(trial.plan) <= 48 else f"{trial.plan[:47]}…",
    ]


def plan_of(view: SearchView, trial: TrialView) -> Any:
    """The id of a trial and its plan."""
    from dash import html

    front = ", on the front" if trial.id in view.on_front else ""
    return [html.H3(f"{trial.id}{front}"), _plan_boxes(view, trial)]


def facts_of(data: Mapping[str, Any]) -> Any:
    """The numbers of a trial, from `trial_data`."""
    from dash import html

    return html.Dl([part for name, text in data["rows"] for part in (html.Dt(name), html.Dd(text))])


def _plan_boxes(view: SearchView, trial: TrialView) -> Any:
    """The plan as one box per layer, grouped by stage."""
    from dash import html

    stages: list[tuple[str, list[Any]]] = []
    for layer, level in zip(view.layers_of(trial), trial.plan, strict=True):
        if not stages or stages[-1][0] != layer.stage:
            stages.append((layer.stage, []))
        meaning = f"{layer.name}: {LEVELS.get(level, level)}"
        stages[-1][1].append(html.Span(level, className=f"level {level}", title=meaning))
    return html.Div(
        [html.Div([html.Small(name), *boxes], className="stage") for name, boxes in stages],
        className="plan",
    )


def commands_of(data: Mapping[str, Any]) -> Any:
    """The commands that export and train a complete trial, with a button to copy them."""
    from dash import dcc, html

    command = data["command"]
    if not command:
        return []
    copy = dcc.Clipboard(content=command, title="copy the commands", className="copy")
    return html.Div([html.Pre(command, id="command"), copy], className="command")
