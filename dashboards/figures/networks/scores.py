"""The scores of a selector as a bar chart with a bar per layer, as html, png and csv. Its rows are
made in `search.session.selection`."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.style import GRID, INK, PALETTE
from bitfront.dashboards.pages.page import figure_page

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = Mapping[str, Any]
COLUMNS = ("layer", "place", "score", "flops_pct")
PLACE = "place in the order"


def scores_figure(rows: Sequence[Row], title: str, label: str) -> go.Figure:
    """Bars of the scores, or of the places in the order where a selector has no scores. The place
    of a layer is written above its bar."""
    import plotly.graph_objects as go

    key, label = _shown(rows, label)
    figure = go.Figure(
        go.Bar(
            x=[row["layer"] for row in rows],
            y=[row[key] for row in rows],
            text=[str(row["place"]) for row in rows],
            textposition="outside",
            cliponaxis=False,
            marker_color=PALETTE[0],
            hovertext=[_hover(row) for row in rows],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    axis = {"automargin": True, "gridcolor": GRID, "linecolor": INK, "zerolinecolor": INK}
    figure.update_layout(
        template="plotly_white",
        height=560,
        title={"text": html.escape(title), "font": {"size": 16}},
        font={"size": 13, "color": INK},
        margin={"l": 8, "r": 16, "t": 48, "b": 8},
        xaxis={**axis, "title": {"text": "layer; above it its place: 1 turns binary first"}},
        yaxis={**axis, "title": {"text": html.escape(label)}},
    )
    return figure


def scores_html(rows: Sequence[Row], title: str, label: str) -> str:
    """The bars as a page that works offline."""
    figure = scores_figure(rows, title, label)
    return figure_page(figure, title, "scores")


def scores_png(rows: Sequence[Row], title: str, label: str, path: str | Path) -> Path:
    """The bars as a png, drawn by matplotlib: Plotly's static export needs a browser."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    key, label = _shown(rows, label)
    figure = Figure(figsize=(8, 5.6), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bars = axes.bar(range(len(rows)), [float(row[key] or 0) for row in rows], color=PALETTE[0])
    axes.bar_label(bars, [str(row["place"]) for row in rows], fontsize=11, color=INK)
    axes.set_xticks(range(len(rows)), [row["layer"] for row in rows], rotation=90, fontsize=10)
    words: dict[str, Any] = {"fontsize": 13, "color": INK, "parse_math": False}
    axes.set_title(title, **{**words, "fontsize": 16})
    axes.set_xlabel("layer; above it its place: 1 turns binary first", **words)
    axes.set_ylabel(label, **words)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    path = Path(path)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def scores_csv(rows: Sequence[Row]) -> str:
    """A row per layer: place, score, and the share of the flops that a binary layer saves."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _shown(rows: Sequence[Row], label: str) -> tuple[str, str]:
    """(key, label) of what the bars show."""
    return ("score", label) if any(row["score"] is not None for row in rows) else ("place", PLACE)


def _hover(row: Row) -> str:
    score = "-" if row["score"] is None else f"{row['score']:.4g}"
    return (
        f"<b>{html.escape(row['layer'])}</b><br>place: {row['place']}<br>score: {score}<br>"
        f"turning it binary saves {row['flops_pct']:.2f} % of the flops"
    )
