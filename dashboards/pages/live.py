"""The live page: the figures of the report while the search runs, on Dash.

The page asks every few seconds whether a ledger has changed and draws again only then. Figures come
as JSON and get the colours of the screen in the browser (`live.js`). What is read, and how, is the
business of the `Source`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bitfront.dashboards.figures.style import DARK
from bitfront.dashboards.pages.hosts import guarded
from bitfront.dashboards.pages.live_figures import (
    STATES,
    TABS,
    curve_figure,
    filtered,
    tab_figures,
    tabs_of,
)
from bitfront.dashboards.pages.page import asset
from bitfront.dashboards.pages.report import LEVELS, tiles, trial_data
from bitfront.dashboards.view import SearchView, TrialView
from bitfront.search.ledger.states import TrialState

if TYPE_CHECKING:
    from dash import Dash

# As many figures as a tab has at most: every two of four objectives.
SLOTS = 6
TICK_SECONDS = 2.0
MOST_ROWS = 40
# Of the table of trials: id, state, method, settings, quality, cost, time, plan.
COLUMNS = ("", "", "", "settings", "number", "number", "number", "letters")
HINT = "Click a point, a curve or a row: its plan, its curve and the command that exports it."
GRAPH: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d"],
}
# Dash serves all of this folder and nothing else.
ASSETS = Path(__file__).parent / "live_assets"
# Scripts and styles of Dash itself are in the page; nothing comes from or goes to another host.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "form-action 'none'; frame-ancestors 'none'"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
{{%metas%}}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{%title%}}</title>
<link rel="icon" href="data:,">
<style>
{style}
</style>
{{%css%}}
</head>
<body>
{{%app_entry%}}
<footer>{{%config%}}{{%scripts%}}{{%renderer%}}</footer>
</body>
</html>
"""


class Listed(NamedTuple):
    """A search in the list."""

    name: str
    label: str


class Source(Protocol):
    """Where the page looks. None of these raises: what cannot be read is a sentence."""

    def searches(self) -> Sequence[Listed]:
        """The newest first."""

    def version(self, name: str) -> str:
        """Another one when there is something new to see."""

    def look(self, name: str) -> SearchView | str:
        """The search as it is now, or why it cannot be shown."""

    def importance(self, name: str) -> Mapping[str, float]:
        """What its quality depended on."""


def live_app(
    source: Source,
    chosen: str | None = None,
    tick: float = TICK_SECONDS,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
) -> Dash:
    """The page of all searches, opened on `chosen`, for those who ask by a name of `hosts`."""
    from dash import Dash

    app = Dash(
        "bitfront",
        assets_folder=str(ASSETS),
        title="bitfront",
        update_title="",
        serve_locally=True,
        index_string=PAGE.format(style=asset("page.css")),
    )
    app.layout = lambda: _layout(source, chosen, tick)
    _callbacks(app, source)

    @app.server.after_request
    def with_policy(response: Any) -> Any:
        response.headers["Content-Security-Policy"] = POLICY
        return response

    app.server.wsgi_app = guarded(app.server.wsgi_app, host, names)
    return app


# --- the page -----------------------------------------------------------------------------------


def _layout(source: Source, chosen: str | None, tick: float) -> Any:
    from dash import dcc, html

    options = _options(source)
    first = chosen or (options[0]["value"] if options else None)
    return html.Main(
        className="live",
        children=[
            dcc.Interval(id="tick", interval=1000 * tick),
            dcc.Store(id="seen"),
            dcc.Store(id="chosen"),
            dcc.Store(id="dark"),
            dcc.Store(id="dark-colours", data=DARK),
            *(dcc.Store(id=f"json-{i}") for i in range(SLOTS)),
            dcc.Store(id="json-curve"),
            html.Header(
                [
                    html.H1("bitfront"),
                    html.Div(
                        dcc.Dropdown(
                            id="search",
                            options=options,
                            value=first,
                            clearable=False,
                            placeholder="no search has been run here yet",
                        ),
                        className="searches",
                    ),
                ]
            ),
            html.P("Reading the ledger…", id="sentence", className="sentence"),
            html.Div(id="tiles"),
            html.Div(
                className="filters",
                children=[
                    html.Div(["only methods ", _boxes("methods")]),
                    html.Div(["only states ", _boxes("states")]),
                ],
            ),
            html.Div(
                dcc.RadioItems(id="tab", options=_named(TABS), value="front", inline=True),
                className="tabs",
            ),
            html.Div(
                className="board",
                children=[
                    html.Div([*map(_slot, range(SLOTS)), html.Div(id="rows")], id="figures"),
                    html.Aside(
                        [
                            html.Div(HINT, id="trial"),
                            html.Div(id="export"),
                            html.Div(_graph("curve"), id="trial-curve", hidden=True),
                            html.Div(id="facts"),
                        ]
                    ),
                ],
            ),
            html.P(id="updated", className="updated"),
        ],
    )


def _boxes(name: str) -> Any:
    from dash import dcc

    return dcc.Checklist(id=name, options=[], value=[], inline=True)


def _slot(i: int) -> Any:
    from dash import html

    return html.Div(_graph(f"figure-{i}"), id=f"slot-{i}", className="slot", hidden=i > 0)


def _graph(name: str) -> Any:
    from dash import dcc

    return dcc.Graph(id=name, config=GRAPH, style={"width": "100%"})


def _options(source: Source) -> list[dict[str, str]]:
    return [{"value": each.name, "label": each.label} for each in source.searches()]


def _named(words: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"value": key, "label": title} for key, title in words.items()]


# --- what happens -------------------------------------------------------------------------------


def _callbacks(app: Dash, source: Source) -> None:
    from dash import ALL, ClientsideFunction, Input, Output, State, ctx, no_update

    slots = range(SLOTS)

    @app.callback(
        Output("seen", "data"),
        Output("search", "options"),
        Output("search", "value"),
        Input("tick", "n_intervals"),
        Input("search", "value"),
        State("seen", "data"),
        State("search", "options"),
    )
    def ticked(_: int, name: str | None, seen: Any, options: Any) -> Any:
        """What follows happens only when this tells something new."""
        now = _options(source)
        listed = no_update if now == options else now
        chosen = name or (now[0]["value"] if now else None)
        new = {"search": chosen, "version": source.version(chosen) if chosen else ""}
        return (
            no_update if new == seen else new,
            listed,
            no_update if chosen == name else chosen,
        )

    @app.callback(
        Output("sentence", "children"),
        Output("tiles", "children"),
        Output("methods", "options"),
        Output("states", "options"),
        Output("tab", "options"),
        Output("rows", "children"),
        Output("updated", "children"),
        *(Output(f"slot-{i}", "hidden") for i in slots),
        *(Output(f"json-{i}", "data") for i in slots),
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
            empty = [[], [], _named(TABS), [], ""]
            return [view, [], *empty, *([True] * SLOTS), *([no_update] * SLOTS)]
        known = [m for m in methods if m in view.methods]
        left = filtered(view, known, states)
        tab = tab if tab in tabs_of(view) else "front"
        figures = tab_figures(tab, left, states, lambda: source.importance(view.name))
        json = [_json(f, f"{view.name} {tab}") for f in figures[:SLOTS]]
        return [
            _state_sentence(view),
            _tiles(view),
            _named({m: m for m in view.methods}),
            _named({s: f"{s} {view.counts[s]}" for s in STATES if view.counts[s]}),
            _named(tabs_of(view)),
            _trial_rows(left) if tab == "trials" else [],
            f"ledger read at {time.strftime('%H:%M:%S')}",
            *(i >= len(json) for i in slots),
            *(json[i] if i < len(json) else no_update for i in slots),
        ]

    @app.callback(
        Output("chosen", "data"),
        *(Input(f"figure-{i}", "clickData") for i in slots),
        Input({"row": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def clicked(*_: Any) -> Any:
        """The trial of a point or of a row."""
        triggered = ctx.triggered_id
        if isinstance(triggered, dict):
            # Rows that are drawn anew trigger too, with no click in them.
            return triggered["row"] if ctx.triggered[0]["value"] else no_update
        click = ctx.triggered[0]["value"]
        trial = click["points"][0].get("customdata") if click else None
        return trial if isinstance(trial, str) else no_update

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
        told = _told(view, trial)
        return _head(view, trial), _export(told), _facts(told), False, json

    for name in (*(f"{i}" for i in slots), "curve"):
        graph = name if name == "curve" else f"figure-{name}"
        app.clientside_callback(
            ClientsideFunction("bitfront", "coloured"),
            Output(graph, "figure"),
            Output(graph, "style"),
            Input(f"json-{name}", "data"),
            Input("dark", "data"),
            State("dark-colours", "data"),
        )
    app.clientside_callback(
        ClientsideFunction("bitfront", "isDark"),
        Output("dark", "data"),
        Input("dark-colours", "data"),
    )


def _is_old(trial: TrialView) -> bool:
    """Nothing about a trial changes once it has ended."""
    return trial.ended is not None and time.time() - trial.ended > 5 * TICK_SECONDS


def _json(figure: Any, revision: str) -> str:
    """A zoom stays as long as the revision is the same."""
    figure.update_layout(uirevision=revision)
    return figure.to_json()


# --- pieces -------------------------------------------------------------------------------------


def _state_sentence(view: SearchView) -> str:
    if view.trials:
        return ""
    if view.state == "running":
        return "The search is starting: its first trial is being prepared."
    return "The search has no trial yet. Continue it: bitfront resume " + view.name


def _tiles(view: SearchView) -> Any:
    from dash import html

    shown = tiles(view)
    if view.counts[TrialState.RUNNING]:
        shown["running"] = str(view.counts["running"])
    return html.Dl(
        [html.Div([html.Dt(name), html.Dd(text)]) for name, text in shown.items()],
        className="tiles",
    )


def _trial_rows(view: SearchView) -> Any:
    """The newest trials, those that run first."""
    from dash import html

    newest = sorted(view.trials, key=lambda t: (t.state != TrialState.RUNNING, -t.number))
    measured = [view.quality.short, view.cost.short]
    head = ["trial", "state", "method", "settings", *measured, "time", "plan"]
    rows = [
        html.Tr(
            [
                html.Td(text, className=kind)
                for text, kind in zip(_trial_row(view, trial), COLUMNS, strict=True)
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


def _trial_row(view: SearchView, trial: TrialView) -> list[str]:
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


def _told(view: SearchView, trial: TrialView) -> dict[str, Any]:
    return trial_data(view, trial)


def _head(view: SearchView, trial: TrialView) -> Any:
    from dash import html

    front = ", on the front" if trial.id in view.on_front else ""
    return [html.H3(f"{trial.id}{front}"), _plan(view, trial)]


def _facts(told: Mapping[str, Any]) -> Any:
    from dash import html

    return html.Dl([part for name, text in told["rows"] for part in (html.Dt(name), html.Dd(text))])


def _plan(view: SearchView, trial: TrialView) -> Any:
    """The plan on the network: a box a layer, the boxes of a stage together."""
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


def _export(told: Mapping[str, Any]) -> Any:
    from dash import dcc, html

    command = told["command"]
    if not command:
        return []
    copy = dcc.Clipboard(content=command, title="copy the commands", className="copy")
    return html.Div([html.Pre(command, id="command"), copy], className="command")
