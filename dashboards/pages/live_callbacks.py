"""What the live page does: on every tick, after a choice of the user and after a click. What it
shows then is made in `live_figures` and `live_pieces`; ids are those of the layout in `live`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.pages.live_figures import (
    SLOTS,
    STATES,
    TABS,
    curve_figure,
    filtered,
    tab_figures,
    tabs_of,
)
from bitfront.dashboards.pages.live_pieces import (
    HINT,
    commands_of,
    facts_of,
    options,
    plan_of,
    search_options,
    search_tiles,
    sentences,
    state_sentence,
    trial_rows,
)
from bitfront.dashboards.pages.panel import trial_data
from bitfront.dashboards.pages.source import Source
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import TrialView

if TYPE_CHECKING:
    from dash import Dash

TICK_SECONDS = 2.0
# After so many ticks without an answer the page asks again for what it has not drawn.
PATIENCE = 3
SLOT_NUMBERS = range(SLOTS)


def add_callbacks(app: Dash, source: Source) -> None:
    """Connect the page to the searches of `source`."""
    _on_tick(app, source)
    _on_change(app, source)
    _on_click(app)
    _on_chosen_trial(app, source)
    _in_the_browser(app)


def _on_tick(app: Dash, source: Source) -> None:
    """Look for something new. All other callbacks follow from a change of `seen`."""
    from dash import Input, Output, State, no_update

    @app.callback(
        Output("seen", "data"),
        Output("search", "options"),
        Output("search", "value"),
        Input("tick", "n_intervals"),
        Input("search", "value"),
        State("seen", "data"),
        State("drawn", "data"),
        State("search", "options"),
    )
    def ticked(tick: int | None, name: str | None, seen: Any, drawn: Any, listed: Any) -> Any:
        now = search_options(source)
        chosen = name or (now[0]["value"] if now else None)
        version = source.version(chosen) if chosen else ""
        new = news(chosen, version, tick or 0, seen, drawn)
        return (
            no_update if new is None else new,
            no_update if now == listed else now,
            no_update if chosen == name else chosen,
        )


def news(
    search: str | None, version: str, tick: int, seen: Any, drawn: Any
) -> dict[str, Any] | None:
    """What the page is to draw: the search, if it has changed since `seen`, or `seen` again where
    it was never `drawn`. Dash does not repeat a request whose answer was lost, or dropped because
    a tick overtook it; the page would stay empty until the next trial ends. Each time it waits
    twice as long, for a server that is slow rather than deaf."""
    new = {"search": search, "version": version, "tick": tick, "tries": 0}
    if seen is None or any(new[key] != seen[key] for key in ("search", "version")):
        return new
    if drawn == seen or tick - seen["tick"] < PATIENCE * 2 ** seen["tries"]:
        return None
    return {**new, "tries": seen["tries"] + 1}


def _on_change(app: Dash, source: Source) -> None:
    """Draw the chosen tab again when the search, the tab or a filter has changed."""
    from dash import Input, Output, no_update

    @app.callback(
        Output("sentence", "children"),
        Output("tiles", "children"),
        Output("methods", "options"),
        Output("states", "options"),
        Output("tab", "options"),
        Output("rows", "children"),
        Output("updated", "children"),
        Output("drawn", "data"),
        *(Output(f"slot-{i}", "hidden") for i in SLOT_NUMBERS),
        *(Output(f"json-{i}", "data") for i in SLOT_NUMBERS),
        Input("seen", "data"),
        Input("tab", "value"),
        Input("methods", "value"),
        Input("states", "value"),
        prevent_initial_call=True,
    )
    def shown(seen: Any, tab: str, methods: list[str], states: list[str]) -> Any:
        name = (seen or {}).get("search")
        view = source.look(name) if name else "No search has been run here yet: bitfront run"
        if isinstance(view, str):
            empty = [[], [], options(TABS), [], "", seen]
            return [view, [], *empty, *([True] * SLOTS), *([no_update] * SLOTS)]
        known = [m for m in methods if m in view.methods]
        left = filtered(view, known, states)
        tab = tab if tab in tabs_of(view) else "front"
        figures = tab_figures(tab, left, states, lambda: source.importance(view.name))
        json = [_json(f, f"{view.name} {tab}") for f in figures[:SLOTS]]
        below = {"trials": trial_rows, "front": sentences}
        return [
            state_sentence(view),
            search_tiles(view),
            options({m: m for m in view.methods}),
            options({s: f"{s} {view.counts[s]}" for s in STATES if view.counts[s]}),
            options(tabs_of(view)),
            below[tab](left) if tab in below else [],
            f"ledger read at {time.strftime('%H:%M:%S')}",
            seen,
            *(i >= len(json) for i in SLOT_NUMBERS),
            *(json[i] if i < len(json) else no_update for i in SLOT_NUMBERS),
        ]


def _on_click(app: Dash) -> None:
    """Remember the trial of the point or of the row that was clicked."""
    from dash import ALL, Input, Output, ctx, no_update

    @app.callback(
        Output("chosen", "data"),
        *(Input(f"figure-{i}", "clickData") for i in SLOT_NUMBERS),
        Input({"row": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def clicked(*_: Any) -> Any:
        triggered = ctx.triggered_id
        if isinstance(triggered, dict):
            # Rows that are drawn again trigger this too, without a click.
            return triggered["row"] if ctx.triggered[0]["value"] else no_update
        click = ctx.triggered[0]["value"]
        trial = click["points"][0].get("customdata") if click else None
        return trial if isinstance(trial, str) else no_update


def _on_chosen_trial(app: Dash, source: Source) -> None:
    """Show plan, curve, numbers and commands of the chosen trial."""
    from dash import Input, Output, ctx, no_update

    @app.callback(
        Output("trial", "children"),
        Output("export", "children"),
        Output("facts", "children"),
        Output("trial-curve", "hidden"),
        Output("json-curve", "data"),
        Input("chosen", "data"),
        Input("seen", "data"),
        prevent_initial_call=True,
    )
    def detailed(chosen: str | None, seen: Any) -> Any:
        name = (seen or {}).get("search")
        view = source.look(name) if name and chosen else ""
        trial = None if isinstance(view, str) else view.by_id.get(chosen or "")
        if trial is None or isinstance(view, str):
            return HINT, [], [], True, no_update
        if ctx.triggered_id == "seen" and trial.state != TrialState.RUNNING and _is_old(trial):
            return [no_update] * 5
        json = _json(curve_figure(view, trial), f"{view.name} {trial.id}")
        data = trial_data(view, trial)
        return plan_of(view, trial), commands_of(data), facts_of(data), False, json


def _in_the_browser(app: Dash) -> None:
    """Let `live.js` draw the figures, in the colours of a light or a dark screen."""
    from dash import ClientsideFunction, Input, Output, State

    untyped: Any = app  # Dash gives this method no types
    for name in (*(f"{i}" for i in SLOT_NUMBERS), "curve"):
        graph = name if name == "curve" else f"figure-{name}"
        untyped.clientside_callback(
            ClientsideFunction("bitfront", "coloured"),
            Output(graph, "figure"),
            Output(graph, "style"),
            Input(f"json-{name}", "data"),
            Input("dark", "data"),
            State("dark-colours", "data"),
        )
    untyped.clientside_callback(
        ClientsideFunction("bitfront", "isDark"),
        Output("dark", "data"),
        Input("dark-colours", "data"),
    )


def _is_old(trial: TrialView) -> bool:
    """Whether a trial ended so long ago that the page shows all of it."""
    return trial.ended is not None and time.time() - trial.ended > 5 * TICK_SECONDS


def _json(figure: Any, revision: str) -> str:
    """The figure as JSON; the browser keeps a zoom as long as `revision` is the same."""
    figure.update_layout(uirevision=revision)
    return str(figure.to_json())
