"""The quality where only one part of the network is binary: a heat map with a row per method and a
column per part, as html, png and csv."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.front.chart import ACCURACY_LABEL
from bitfront.dashboards.figures.style import INK
from bitfront.dashboards.pages.page import figure_page

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Uniform in lightness, and readable for colour-blind people.
COLOURS = "cividis"


@dataclass(frozen=True)
class Cell:
    """One finished trial: the part that was binary, and the quality that the label names, as a
    fraction."""

    method: str
    part: str
    accuracy: float


@dataclass(frozen=True)
class _Grid:
    """Mean quality in percent by method and part; None where no trial has finished."""

    methods: list[str]
    parts: list[str]
    values: list[list[float | None]]


def _grid(cells: Sequence[Cell], parts: Sequence[str]) -> _Grid:
    methods = sorted({cell.method for cell in cells})
    found: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        found.setdefault((cell.method, cell.part), []).append(100 * cell.accuracy)
    values = [[fmean(v) if (v := found.get((m, p))) else None for p in parts] for m in methods]
    return _Grid(methods, list(parts), values)


def heat_map_figure(
    cells: Sequence[Cell],
    parts: Sequence[str],
    title: str,
    part_label: str,
    quality_label: str = ACCURACY_LABEL,
) -> go.Figure:
    """The heat map as a Plotly figure. `parts` are in the order of the network; a part without a
    trial stays empty."""
    import plotly.graph_objects as go

    grid = _grid(cells, parts)
    figure = go.Figure(
        go.Heatmap(
            x=grid.parts,
            y=grid.methods,
            z=grid.values,
            colorscale=COLOURS,
            texttemplate="%{z:.1f}",
            colorbar={"title": {"text": quality_label, "side": "right"}},
            hovertemplate="%{y}, only %{x} binary: %{z:.2f} %<extra></extra>",
            hoverongaps=False,
        )
    )
    axis = {"automargin": True, "type": "category", "linecolor": INK}
    figure.update_layout(
        template="plotly_white",
        height=220 + 40 * len(grid.methods),
        title={"text": html.escape(title), "font": {"size": 16}},
        font={"size": 13, "color": INK},
        margin={"l": 8, "r": 16, "t": 48, "b": 8},
        xaxis={**axis, "title": {"text": html.escape(part_label)}},
        yaxis={**axis, "title": {"text": "method"}, "autorange": "reversed"},
    )
    return figure


def heat_map_html(
    cells: Sequence[Cell],
    parts: Sequence[str],
    title: str,
    part_label: str,
    quality_label: str = ACCURACY_LABEL,
) -> str:
    """The heat map as a page that works offline."""
    figure = heat_map_figure(cells, parts, title, part_label, quality_label)
    return figure_page(figure, title, "heatmap")


def heat_map_png(
    cells: Sequence[Cell],
    parts: Sequence[str],
    title: str,
    part_label: str,
    path: str | Path,
    quality_label: str = ACCURACY_LABEL,
) -> Path:
    """The heat map as a png, drawn by matplotlib: Plotly's static export needs a browser."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    grid = _grid(cells, parts)
    numbers = [[float("nan") if v is None else v for v in row] for row in grid.values]
    figure = Figure(figsize=(8, 2.4 + 0.5 * len(grid.methods)), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    words: dict[str, Any] = {"fontsize": 13, "color": INK, "parse_math": False}
    if grid.methods:
        image = axes.imshow(numbers, cmap=COLOURS, aspect="auto")
        figure.colorbar(image, ax=axes).set_label(quality_label, **words)
    axes.set_xticks(range(len(grid.parts)), grid.parts, rotation=90, fontsize=10)
    axes.set_yticks(range(len(grid.methods)), grid.methods, fontsize=11)
    axes.set_title(title, **{**words, "fontsize": 16})
    axes.set_xlabel(part_label, **words)
    axes.set_ylabel("method", **words)
    path = Path(path)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def heat_map_csv(cells: Sequence[Cell], parts: Sequence[str]) -> str:
    """The heat map as CSV; qualities are fractions."""
    grid = _grid(cells, parts)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", *grid.parts])
    for method, row in zip(grid.methods, grid.values, strict=True):
        shares = ["" if v is None else f"{v / 100:.6g}" for v in row]
        writer.writerow([method, *shares])
    return text.getvalue()
