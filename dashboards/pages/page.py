"""Pages that work offline: plotly.js (about 5 MB) is in the page once, figures are drawn when they
scroll into view, in the colours of a light or a dark screen."""

from __future__ import annotations

import html
import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.style import DARK

if TYPE_CHECKING:
    import plotly.graph_objects as go

# With this the browser refuses every request to another host.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


def figure_page(figure: go.Figure, title: str, name: str) -> str:
    """A figure as a page of its own. `name` is the id of its element: fixed, so that the same
    figure gives the same bytes."""
    heading = f"<h1>{html.escape(title)}</h1>\n"
    figure.update_layout(title=None, margin_t=34)
    return page(title, heading + placed(figure, name))


def page(title: str, body: str, data: dict[str, Any] | None = None) -> str:
    """A page with this title and body; `data` is what its scripts read as `page-data`."""
    from plotly.offline import get_plotlyjs

    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{asset('page.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n"
        f"{_json('dark-colours', DARK)}{_json('page-data', data or {})}"
        f"<script>{get_plotlyjs()}</script>\n<script>\n{asset('page.js')}</script>\n"
        "</body>\n</html>\n"
    )


def placed(figure: go.Figure, name: str) -> str:
    """The place of a figure in a page, and its data, from which `page.js` draws it."""
    height = int(figure.layout.height or 460)
    return (
        f'<div class="figure" id="{name}" style="min-height: {height}px"></div>\n'
        f'<script type="application/json" id="{name}-figure">{_safe(figure.to_json())}</script>\n'
    )


@cache
def asset(name: str) -> str:
    """The text of a script or style sheet in this folder."""
    return resources.files("bitfront.dashboards.pages").joinpath(name).read_text(encoding="utf-8")


def _json(name: str, data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return f'<script type="application/json" id="{name}">{_safe(text)}</script>\n'


def _safe(text: str) -> str:
    """JSON in which no text can end the script element around it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
