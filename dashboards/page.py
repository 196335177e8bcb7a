"""A figure as a page of its own."""

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go


def figure_page(figure: "go.Figure", title: str, name: str) -> str:
    """One page that needs no network: plotly.js is part of it (about 4 MB). `name` is the id of
    the figure; fixed, so that the same figure gives the same bytes."""
    plot = figure.to_html(
        full_html=False,
        include_plotlyjs=True,
        div_id=name,
        config={"responsive": True, "displaylogo": False},
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n</head>\n"
        f'<body style="margin: 8px">\n{plot}\n</body>\n</html>\n'
    )
