"""The style of all pictures: colours, text and frames, for Plotly and for matplotlib.

Both libraries are imported when used. Colours of the page (ink, grid, paper) are named once here;
`DARK` maps each to its colour on a dark screen, which `page.js` puts in its place."""

from __future__ import annotations

import html
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito 2008: distinct for colour-blind readers; those with most contrast on white first.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
# (Plotly, matplotlib). Nine symbols and seven colours: 63 methods before a pair repeats.
SYMBOLS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("cross", "P"),
    ("x", "X"),
    ("star", "*"),
    ("pentagon", "p"),
)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
DOMINATED = "#A6A6A6"
# The opacity of dominated points where they keep the colour of their method.
PALE = 0.55
INK = "#333333"
GRID = "#E6E6E6"
PAPER = "#FFFFFF"
BUDGET = "#7B3294"
DARK = {
    INK: "#E0E0E0",
    GRID: "#3C3C3C",
    PAPER: "#181818",
    DOMINATED: "#7F7F7F",
    BUDGET: "#C9A0DC",
    PALETTE[0]: "#3FA0DC",
}
# Levels from full precision to most binary: dark to light, distinct for colour-blind readers.
LEVEL_COLOURS = {"F": "#0B3C6F", "S": "#56B4E9", "W": "#E69F00", "B": "#F6E3A1", "A": "#FBF4DC"}
EXTENSIONS = ("pdf", "svg", "png")


def look(index: int) -> tuple[str, str, str]:
    """(colour, Plotly symbol, matplotlib marker) of the item with this index."""
    return (PALETTE[index % len(PALETTE)], *SYMBOLS[index % len(SYMBOLS)])


def markup(text: str, width: int = 44) -> str:
    """Plain text for Plotly, which reads its strings as HTML: escaped and broken into lines."""
    lines = textwrap.wrap(text, width) if len(text) > width else [text]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def axis(label: str, **more: Any) -> dict[str, Any]:
    """The layout of a Plotly axis with this label."""
    return {
        "automargin": True,
        "gridcolor": GRID,
        "linecolor": INK,
        "zeroline": False,
        "title": {"text": markup(label, 48), "standoff": 8},
        **more,
    }


def framed(figure: go.Figure, title: str, height: int = 460, **more: Any) -> go.Figure:
    """The figure with the frame that all share. The legend is below, so that the plot has room on a
    narrow screen; above an empty title is room for Plotly's buttons only."""
    figure.update_layout(
        template="plotly_white",
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        height=height,
        title={
            "text": markup(title, 40),
            "font": {"size": 16},
            "yref": "container",
            "automargin": True,
        },
        font={"size": 13, "color": INK},
        margin={"l": 8, "r": 16, "t": 24 if title else 34, "b": 8},
        hoverlabel={"align": "left", "font": {"size": 12}, "namelength": -1},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": DOMINATED, "activecolor": INK},
    )
    figure.update_layout(**more)
    return figure


def noted(figure: go.Figure, text: str) -> None:
    """Write a text in the middle of a figure that has nothing to show, not even axes."""
    figure.update_layout(xaxis_visible=False, yaxis_visible=False)
    figure.add_annotation(
        text=markup(text), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False
    )


# Images for papers: matplotlib, because Plotly's static export needs a browser.


def canvas(width: float = 8.0, height: float = 5.2, dpi: int = 200) -> tuple[Figure, Axes]:
    """An empty figure with one plot, sizes in inches; without pyplot and its global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=12, colors=INK)
    axes.set_axisbelow(True)
    return figure, axes


def words(size: int = 13) -> dict[str, Any]:
    """The style of a text. A dollar sign in it starts no formula."""
    return {"fontsize": size, "color": INK, "parse_math": False}


def titled(axes: Axes, title: str, size: int = 14, pad: float | None = None) -> None:
    """Set the title of a plot, in lines of at most 70 characters."""
    axes.set_title("\n".join(textwrap.wrap(title, 70)), pad=pad, **words(size))


def saved(figure: Figure, path: str | Path) -> Path:
    """Write a figure as pdf, svg or png, by the name of the file. Fonts are embedded (TrueType in a
    pdf, outlines in an svg), and the same figure gives the same bytes."""
    import matplotlib

    path = Path(path)
    extension = path.suffix.lower().removeprefix(".")
    unstamped: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }
    settings: Any = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "bitfront"}
    with matplotlib.rc_context(settings):
        figure.savefig(path, format=extension, metadata=unstamped[extension])
    return path
