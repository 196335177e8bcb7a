"""What the live page does: on every tick, after a choice of the user and after a click. What it
shows then is made in `figures`, `pieces`, `table` and `running`; ids are those of
the layout in `app`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.pages.comparison import comparable
from bitfront.dashboards.pages.live.figures import (
    GROWING,
    SLOTS,
    SMALL,
    STATES,
    TABS,
    Importance,
    compared_figures,
    contour_of,
    curve_figure,
    filtered,
    tab_figures,
    tabs_of,
)
from bitfront.dashboards.pages.live.pieces import (
    HINT,
    commands_of,
    compared,
    facts_of,
    failure_rows,
    options,
    plan_of,
    search_options,
    search_tiles,
    sentences,
    state_sentence,
)
from bitfront.dashboards.pages.live.running import running_cards
from bitfront.dashboards.pages.live.source import Source
from bitfront.dashboards.pages.live.table import trial_table
from bitfront.dashboards.pages.panel import trial_data
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView
from bitfront.trainables.errors import UserError

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
    _on_turn(app, source)
    _on_click(app)
    _on_chosen_trial(app, source)
    _in_the_browser(app)


def _on_tick(app: Dash, source: Source) -> None:
    """Look for something new. All other callbacks follow from a change of `seen` or, for what
    running trials report, of `turn`."""
    from dash import Input, Output, State, no_update

    @app.callback(
        Output("seen", "data"),
        Output("turn", "data"),
        Output("search", "options"),
        Output("search", "value"),
        Output("others", "options"),
        Output("others-place", "hidden"),
        Input("tick", "n_intervals"),
        Input("search", "value"),
        Input("others", "value"),
        State("seen", "data"),
        State("turn", "data"),
        State("drawn", "data"),
        State("search", "options"),
        State("others", "options"),
    )
    def ticked(
        tick: int | None,
        name: str | None,
        others: list[str] | None,
        seen: Any,
        turn: Any,
        drawn: Any,
        listed: Any,
        comparable: Any,
    ) -> Any:
        now = search_options(source)
        chosen = name or (now[0]["value"] if now else None)
        rest = [each for each in now if each["value"] != chosen]
        looked = [each for each in (chosen, *(others or [])) if each]
        version = " ".join(source.version(each) for each in looked)
        new = news(chosen, version, tick or 0, seen, drawn)
        told = f"{chosen} {source.turn(chosen)}" if chosen else ""
        return (
            no_update if new is None else new,
            no_update if told == turn else told,
            no_update if now == listed else now,
            no_update if chosen == name else chosen,
            no_update if rest == comparable else rest,
            not rest,
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
    """Draw the chosen tab again when the search, the tab or a filter has changed, and those that
    show running trials when one of these has reported."""
    from dash import ctx, no_update

    @app.callback(*_shown_parts(), prevent_initial_call=True)
    def shown(
        seen: Any,
        _turn: Any,
        tab: str,
        methods: list[str],
        states: list[str],
        others: list[str] | None,
        x: str | None,
        y: str | None,
        drawn: Any,
    ) -> Any:
        name = (seen or {}).get("search")
        if ctx.triggered_id == "turn" and drawn == seen and tab not in GROWING:
            return [no_update] * (15 + 2 * SLOTS)
        view = source.look(name) if name else "No search has been run here yet: bitfront run"
        if isinstance(view, str):
            parts, tops = Parts(tab="front"), [view, [], [], [], options(TABS)]
        else:
            looked = [source.look(each) for each in others or [] if each != name]
            rest = [each for each in looked if not isinstance(each, str)]
            chosen = Chosen(methods, states, x, y)
            parts = parts_of(view, rest, tab, chosen, lambda: source.importance(view.name))
            tops = _tops(view, others or ())
        json = [_json(f, f"{name} {parts.tab} {x} {y}") for f in parts.figures[:SLOTS]]
        choices = options({n: n for n in parts.settings})
        return [
            *tops,
            "small" if parts.tab in SMALL else "",
            not parts.settings,
            choices,
            choices,
            *parts.axes,
            parts.table,
            parts.below,
            f"ledger read at {time.strftime('%H:%M:%S')}",
            seen,
            *(i >= len(json) for i in SLOT_NUMBERS),
            *(json[i] if i < len(json) else no_update for i in SLOT_NUMBERS),
        ]


def _shown_parts() -> list[Any]:
    """What `shown` answers to, and what it changes."""
    from dash import Input, Output, State

    return [
        Output("sentence", "children"),
        Output("tiles", "children"),
        Output("methods", "options"),
        Output("states", "options"),
        Output("tab", "options"),
        Output("figures", "className"),
        Output("pickers", "hidden"),
        Output("contour-x", "options"),
        Output("contour-y", "options"),
        Output("contour-x", "placeholder"),
        Output("contour-y", "placeholder"),
        Output("table", "data"),
        Output("rows", "children"),
        Output("updated", "children"),
        Output("drawn", "data"),
        *(Output(f"slot-{i}", "hidden") for i in SLOT_NUMBERS),
        *(Output(f"json-{i}", "data") for i in SLOT_NUMBERS),
        Input("seen", "data"),
        Input("turn", "data"),
        *(Input(name, "value") for name in ("tab", "methods", "states", "others")),
        *(Input(name, "value") for name in ("contour-x", "contour-y")),
        State("drawn", "data"),
    ]


def _tops(view: SearchView, others: Sequence[str]) -> list[Any]:
    """What stands above the tabs, and the tabs."""
    return [
        state_sentence(view),
        search_tiles(view),
        options({m: m for m in view.methods}) if len(view.methods) > 1 else [],
        options({s: f"{s} {view.counts[s]}" for s in STATES if view.counts[s]}),
        options(tabs_of(view, others)),
    ]


def _on_turn(app: Dash, source: Source) -> None:
    """Show what runs now."""
    from dash import Input, Output

    @app.callback(
        Output("running", "children"),
        Input("turn", "data"),
        Input("seen", "data"),
        prevent_initial_call=True,
    )
    def running(_turn: Any, seen: Any) -> Any:
        name = (seen or {}).get("search")
        view = source.look(name) if name else ""
        return [] if isinstance(view, str) else running_cards(view)


@dataclass(frozen=True)
class Chosen:
    """What the reader has chosen on the page."""

    methods: Sequence[str] = ()
    states: Sequence[str] = ()
    x: str | None = None
    y: str | None = None


@dataclass(frozen=True)
class Parts:
    """What a tab shows."""

    tab: str
    figures: Sequence[Any] = ()
    table: Any = None
    below: Any = ()
    settings: Sequence[str] = ()
    """those to choose from, for the axes of a picture"""
    axes: tuple[str, str] = ("", "")


def parts_of(
    view: SearchView, others: Sequence[SearchView], tab: str, chosen: Chosen, importance: Importance
) -> Parts:
    """What a tab shows of a search and of those it is compared with."""
    tab = tab if tab in tabs_of(view, [o.name for o in others]) else "front"
    if tab == "compare":
        try:
            views = comparable([view, *others])
        except UserError as error:
            return Parts(tab, below=error.message)
        return Parts(tab, compared_figures(views), below=compared(views))
    known = [m for m in chosen.methods if m in view.methods]
    left = filtered(view, known, chosen.states)
    if tab == "contour":
        figure, names, x, y = contour_of(left, chosen.x, chosen.y, importance)
        return Parts(tab, [figure], settings=names, axes=(x or "", y or ""))
    below = {"front": sentences, "failures": failure_rows}
    return Parts(
        tab,
        tab_figures(tab, left, chosen.states, importance),
        trial_table(left) if tab == "trials" else None,
        below[tab](left) if tab in below else (),
    )


def _on_click(app: Dash) -> None:
    """Remember the trial of the point that was clicked; those of rows and cards come from
    `live.js`."""
    from dash import Input, Output, ctx, no_update

    @app.callback(
        Output("chosen", "data"),
        *(Input(f"figure-{i}", "clickData") for i in SLOT_NUMBERS),
        prevent_initial_call=True,
    )
    def clicked(*_: Any) -> Any:
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
        Input("turn", "data"),
        prevent_initial_call=True,
    )
    def detailed(chosen: str | None, seen: Any, _turn: Any) -> Any:
        name = (seen or {}).get("search")
        view = source.look(name) if name and chosen else ""
        trial = None if isinstance(view, str) else view.by_id.get(chosen or "")
        if trial is None or isinstance(view, str):
            return HINT, [], [], True, no_update
        if (
            ctx.triggered_id in ("seen", "turn")
            and trial.state != TrialState.RUNNING
            and _is_old(trial)
        ):
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
        ClientsideFunction("bitfront", "table"),
        Output("trials", "data-rows"),
        Input("table", "data"),
    )
    untyped.clientside_callback(
        ClientsideFunction("bitfront", "compared"),
        Output("tab", "value"),
        Input("others", "value"),
        State("tab", "value"),
        prevent_initial_call=True,
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
