"""The parts of the live page that change with a search, as Dash components: tiles, sentences,
tables of failures and of several searches, the panel of one trial. The table of trials is in
`table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitfront.dashboards.figures.front.overlay import Overlay
from bitfront.dashboards.figures.trials.failures import MEANINGS, reasons
from bitfront.dashboards.pages.insights import rules
from bitfront.dashboards.pages.live.source import Source
from bitfront.dashboards.pages.tiles import decided, tiles
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView
from bitfront.trainables.plan import LEVELS

# A part of the page that scrolls sideways can be reached by keyboard.
SCROLLED: Any = {"tabIndex": 0, "role": "region", "aria-label": "table"}
HINT = "Click a point, a curve or a row: its plan, its curve and the command that exports it."


def search_options(source: Source) -> list[dict[str, str]]:
    """The choices of the list of searches."""
    return [{"value": each.name, "label": each.label} for each in source.searches()]


def options(titles: Mapping[str, str]) -> list[dict[str, str]]:
    """Choices of a Dash component, from value to title."""
    return [{"value": key, "label": title} for key, title in titles.items()]


def state_sentence(view: SearchView) -> str:
    """What is going on where there is no point to show; else nothing."""
    if not view.trials:
        if view.state == "running":
            return "The search is starting: its first trial is being prepared."
        return f"The search has no trial yet. Continue it: bitfront resume {view.name}"
    if view.points:
        return ""
    failed = view.counts[TrialState.FAILED]
    if failed and failed == len(view.trials):
        last = f", the last one of: {view.trials[-1].failure}" if view.trials[-1].failure else ""
        return f"All {failed} trials have failed{last}. The tab Failures has the messages."
    if view.state == "running":
        return "No trial has ended yet; the front begins with the first one."
    return f"No trial is complete. Continue the search: bitfront resume {view.name}"


def search_tiles(view: SearchView) -> Any:
    """The search at a glance, with the number of running trials, and what is known of its model,
    its limits and its failures."""
    from dash import html

    shown = tiles(view)
    numbers = html.Dl(
        [html.Div([html.Dt(name), html.Dd(text)]) for name, text in shown.items()],
        className="tiles",
    )
    told = [*decided(view), *view.limits, *(f"What fails: {text}." for text in view.failing)]
    return [numbers, *(html.P(text, className="faint") for text in told)]


def sentences(view: SearchView) -> Any:
    """What the front shows, in words."""
    from dash import html

    found = [*(rule.sentence for rule in rules(view))]
    said = [html.H2("In words"), html.Ul([html.Li(text) for text in found])] if found else []
    tries = [html.H2("What it would try next"), html.Ul([html.Li(t) for t in view.tries])]
    return [*said, *(tries if view.tries else [])]


def failure_rows(view: SearchView) -> Any:
    """The reasons for which trials failed, with what each means and the last message; and what the
    failed trials have in common."""
    from dash import html

    heads = ["reason", "trials", "what it means", "last message", "which"]
    rows = [
        [r.name, str(r.count), MEANINGS.get(r.name, ""), r.message[:300], _buttons(r.trials)]
        for r in reasons(view)
    ]
    body = [html.Tr([html.Td(cell, className="wide") for cell in row]) for row in rows]
    table = html.Table(
        [html.Thead(html.Tr([html.Th(h, scope="col") for h in heads])), html.Tbody(body)]
    )
    hint = f"bitfront status {view.name} --failures prints every traceback."
    return [html.Div(table, className="scroll", **SCROLLED), html.P(hint, className="faint")]


def _buttons(trials: Sequence[str]) -> Any:
    """The first trials as buttons that show them, and how many more there are."""
    from dash import html

    named: Any = [(trial, {"data-trial": trial}) for trial in trials[:8]]
    shown = [html.Button(trial, className="plain", **data) for trial, data in named]
    return [*shown, *([f" and {len(trials) - 8} more"] if len(trials) > 8 else [])]


def compared(views: Sequence[SearchView]) -> Any:
    """Several searches as a table, and the differences in words."""
    from dash import html

    overlay = Overlay(views)
    heads = ["search", "state", "trials", "front", "on the joint front", "hypervolume"]
    rows = [
        [
            view.name,
            view.state,
            str(view.counts[TrialState.COMPLETE]),
            str(len(view.front)),
            str(len(overlay.contributed(i))),
            f"{100 * overlay.share(view):.2f} %",
        ]
        for i, view in enumerate(views)
    ]
    body = [html.Tr([html.Td(cell) for cell in row]) for row in rows]
    head = html.Thead(html.Tr([html.Th(h, scope="col") for h in heads]))
    table = html.Div(html.Table([head, html.Tbody(body)]), className="scroll", **SCROLLED)
    return [html.P(overlay.sentence()), table]


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
