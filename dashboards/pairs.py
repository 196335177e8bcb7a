"""A front over three objectives or more as a matrix of pairs, each of them its own scatter."""

import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboards.figures import DOMINATED, GRID, INK, PALETTE
from dashboards.page import figure_page

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class PairPoint:
    """One finished trial: a value for every objective, in the order of the labels."""

    trial: str
    values: tuple[float, ...]
    on_front: bool


def pairs_figure(points: Sequence[PairPoint], labels: Sequence[str], title: str) -> "go.Figure":
    """Objectives in percent are given so; the diagonal stays empty."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for on_front, name, colour in ((False, "dominated", DOMINATED), (True, "front", PALETTE[0])):
        chosen = [p for p in points if p.on_front == on_front]
        figure.add_splom(
            dimensions=[
                {"label": html.escape(label), "values": [p.values[i] for p in chosen]}
                for i, label in enumerate(labels)
            ],
            name=name,
            text=[html.escape(p.trial) for p in chosen],
            marker={"color": colour, "size": 8 if on_front else 5},
            diagonal={"visible": False},
            showupperhalf=False,
        )
    figure.update_layout(
        template="plotly_white",
        height=260 * len(labels),
        title={"text": html.escape(title), "font": {"size": 16}},
        font={"size": 12, "color": INK},
    )
    return figure


def pairs_html(points: Sequence[PairPoint], labels: Sequence[str], title: str) -> str:
    """One page that needs no network."""
    return figure_page(pairs_figure(points, labels, title), title, "pairs")


def pairs_png(
    points: Sequence[PairPoint], labels: Sequence[str], title: str, path: str | Path
) -> Path:
    """The same, drawn by matplotlib: a row and a column less than there are objectives."""
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
