"""The live page: the figures of the report while the search runs, on Dash. The app and its layout.

The page asks every few seconds whether a ledger has changed and draws again only then. Figures are
sent as JSON and get the colours of the screen in the browser (`live.js`). A `Source` reads the
searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.style import DARK
from bitfront.dashboards.pages.hosts import guarded
from bitfront.dashboards.pages.live.callbacks import TICK_SECONDS, add_callbacks
from bitfront.dashboards.pages.live.figures import SLOTS, TABS
from bitfront.dashboards.pages.live.pieces import HINT, options, search_options
from bitfront.dashboards.pages.live.requests import refuse_unknown_callbacks
from bitfront.dashboards.pages.live.source import Source
from bitfront.dashboards.pages.page import asset

if TYPE_CHECKING:
    from dash import Dash

GRAPH: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d"],
}
# Dash serves all files of this folder and no others.
ASSETS = Path(__file__).parent / "assets"
# Dash needs inline scripts and styles; nothing comes from or goes to another host.
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


def live_app(
    source: Source,
    chosen: str | None = None,
    tick: float = TICK_SECONDS,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
) -> Dash:
    """The page of all searches, opened on `chosen`. It answers requests to `host`, to loopback and
    to the host names in `names` (`hosts.guarded`)."""
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
    add_callbacks(app, source)
    refuse_unknown_callbacks(app)

    def with_policy(response: Any) -> Any:
        response.headers["Content-Security-Policy"] = POLICY
        return response

    app.server.after_request(with_policy)

    app.server.wsgi_app = guarded(app.server.wsgi_app, host, names)
    return app


def _layout(source: Source, chosen: str | None, tick: float) -> Any:
    """All components of the page, most of them still empty."""
    from dash import dcc, html

    searches = search_options(source)
    first = chosen or (searches[0]["value"] if searches else None)
    return html.Main(
        className="live",
        children=[
            dcc.Interval(id="tick", interval=1000 * tick),
            dcc.Store(id="seen"),
            dcc.Store(id="turn"),
            dcc.Store(id="table"),
            dcc.Store(id="drawn"),
            dcc.Store(id="chosen"),
            dcc.Store(id="dark"),
            dcc.Store(id="dark-colours", data=DARK),
            *(dcc.Store(id=f"json-{i}") for i in range(SLOTS)),
            dcc.Store(id="json-curve"),
            _header(searches, first),
            html.P("Reading the ledger…", id="sentence", className="sentence"),
            html.Div(id="tiles"),
            html.Section(id="running"),
            html.Div(
                className="filters",
                children=[
                    html.Div(["only methods ", _boxes("methods")]),
                    html.Div(["only states ", _boxes("states")]),
                ],
            ),
            html.Div(
                dcc.RadioItems(id="tab", options=options(TABS), value="front", inline=True),
                className="tabs",
            ),
            html.Div(
                className="board",
                children=[
                    html.Div(
                        [
                            _pickers(),
                            html.Div([*map(_slot, range(SLOTS))], id="figures"),
                            html.Div(id="trials"),
                            html.Div(id="rows"),
                        ],
                        className="main",
                    ),
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


def _header(searches: list[dict[str, str]], first: str | None) -> Any:
    """The title and the list of searches."""
    from dash import dcc, html

    listed = dcc.Dropdown(
        id="search",
        options=searches,
        value=first,
        clearable=False,
        placeholder="no search has been run here yet",
    )
    others = dcc.Dropdown(
        id="others", options=[], value=[], multi=True, placeholder="compare with others"
    )
    return html.Header(
        [
            html.H1("bitfront"),
            html.Div(listed, className="searches"),
            html.Div(others, className="searches", id="others-place", hidden=True),
        ]
    )


def _pickers() -> Any:
    """The choice of two settings, for the picture over both."""
    from dash import dcc, html

    chosen = [dcc.Dropdown(id=f"contour-{axis}", options=[], clearable=True) for axis in "xy"]
    return html.Div(chosen, id="pickers", className="pickers", hidden=True)


def _boxes(name: str) -> Any:
    from dash import dcc

    return dcc.Checklist(id=name, options=[], value=[], inline=True)


def _slot(i: int) -> Any:
    from dash import html

    return html.Div(_graph(f"figure-{i}"), id=f"slot-{i}", className="slot", hidden=i > 0)


def _graph(name: str) -> Any:
    from dash import dcc

    return dcc.Graph(id=name, config=GRAPH, style={"width": "100%"})
