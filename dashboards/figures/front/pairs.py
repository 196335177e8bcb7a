"""The front of three or more objectives: a picture for every two of them. With two objectives the
modules beside this one draw it."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.style import DOMINATED, GRID, INK, PALETTE, axis, framed, markup
from bitfront.dashboards.pages.page import page, placed
from bitfront.search.results.view import SearchView

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class PairPoint:
    """One point in all objectives, for figures that show two of them at a time."""

    trial: str
    values: tuple[float, ...]
    """in the order of the labels; fractions in percent"""
    on_front: bool
    summary: str = ""
    """trial, method, settings and plan in one line"""


def pair_points(view: SearchView) -> list[PairPoint]:
    """Every point of the search in all of its objectives."""
    return [
        PairPoint(
            key,
            tuple(axis.shown(v) for axis, v in zip(view.objectives, values, strict=True)),
            key in view.on_front,
            view.point_of[key].summary if key in view.point_of else key,
        )
        for key, values in view.objective_values.items()
    ]


def pair_figures(points: Sequence[PairPoint], labels: Sequence[str]) -> dict[str, go.Figure]:
    """A figure for every two objectives, by the id of its place on the page. A point of the front
    may be dominated in these two objectives: it is better in a third one."""
    import plotly.graph_objects as go

    found = {}
    for i, j in itertools.combinations(range(len(labels)), 2):
        figure = go.Figure()
        for on_front, name in ((False, "dominated"), (True, "front")):
            chosen = [p for p in points if p.on_front == on_front]
            figure.add_scatter(
                x=[p.values[j] for p in chosen],
                y=[p.values[i] for p in chosen],
                mode="markers",
                name=name,
                customdata=[p.trial for p in chosen],
                marker={
                    "color": PALETTE[0] if on_front else DOMINATED,
                    "size": 9 if on_front else 5,
                },
                text=[markup(p.summary or p.trial) for p in chosen],
                hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
            )
        found[f"pair-{i}-{j}"] = framed(figure, "", xaxis=axis(labels[j]), yaxis=axis(labels[i]))
    return found


def pairs_html(points: Sequence[PairPoint], labels: Sequence[str], title: str) -> str:
    """All pairs as a page that works offline."""
    figures = pair_figures(points, labels)
    body = "\n".join(placed(figure, name) for name, figure in figures.items())
    return page(title, f"<h1>{html.escape(title)}</h1>\n{body}")


def pairs_png(
    points: Sequence[PairPoint], labels: Sequence[str], title: str, path: str | Path
) -> Path:
    """All pairs as a png, one panel per pair, drawn by matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n = len(labels) - 1
    figure = Figure(figsize=(3.4 * n + 1, 3.0 * n + 1), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    words: dict[str, Any] = {"fontsize": 11, "color": INK, "parse_math": False}
    grid = figure.subplots(n, n, squeeze=False)
    for row, column in itertools.product(range(n), range(n)):
        axes = grid[row][column]
        if column > row:
            axes.set_visible(False)
            continue
        for on_front, colour, size in ((False, DOMINATED, 14), (True, PALETTE[0], 30)):
            chosen = [p for p in points if p.on_front == on_front]
            axes.scatter(
                [p.values[column] for p in chosen],
                [p.values[row + 1] for p in chosen],
                color=colour,
                s=size,
                label="front" if on_front else "dominated",
            )
        axes.grid(color=GRID)
        axes.set_axisbelow(True)
        if row == n - 1:
            axes.set_xlabel(labels[column], **words)
        if column == 0:
            axes.set_ylabel(labels[row + 1], **words)
    grid[0][0].legend(frameon=False, fontsize=9)
    figure.suptitle(title, **{**words, "fontsize": 14})
    path = Path(path)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path
