"""The level of every layer along the front, as a heat map: which layers stay in full precision.
Drawn with Plotly and with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from bitfront.dashboards.figures import FIGURES, Subject
from bitfront.dashboards.figures.style import (
    INK,
    LEVEL_COLOURS,
    PAPER,
    axis,
    canvas,
    framed,
    markup,
    noted,
    saved,
    titled,
    words,
)
from bitfront.search.results.view import Layer, SearchView, TrialView
from bitfront.trainables.plan import LEVELS

if TYPE_CHECKING:
    import plotly.graph_objects as go

ORDER = "".join(LEVELS)
EMPTY = "no front yet"
# With more rows or columns there is no room for letters and names.
LETTERS = 40
# The width of a character, as a share of the size of its font.
CHARACTER = 0.62


@dataclass(frozen=True)
class _Map:
    """A row per point of the front, the cheapest first; a column per layer, from the input on."""

    trials: list[TrialView]
    layers: list[Layer]
    letters: list[list[str]]
    """levels; '' where a network does not have the layer"""
    names: list[str]

    @property
    def stages(self) -> list[tuple[str, int, int]]:
        """(name, first column, one past its last column) of every stage."""
        found: list[tuple[str, int, int]] = []
        for i, layer in enumerate(self.layers):
            if found and found[-1][0] == layer.stage:
                found[-1] = (layer.stage, found[-1][1], i + 1)
            else:
                found.append((layer.stage, i, i + 1))
        return found

    @property
    def levels(self) -> list[str]:
        return [level for level in ORDER if any(level in row for row in self.letters)]

    @property
    def kept_share(self) -> list[float]:
        """The share of the points of the front in which each layer is in full precision."""
        columns = zip(*self.letters, strict=True)
        return [sum(c == "F" for c in column) / len(self.letters) for column in columns]


def _map(view: SearchView) -> _Map:
    """The levels along the front of a search."""
    trials = [view.by_id[key] for key in view.front]
    columns: dict[str, Layer] = {}
    for trial in sorted(trials, key=lambda t: -len(t.plan)):
        for layer in view.layers_of(trial):
            columns.setdefault(layer.name, layer)
    letters, names = [], []
    for trial in trials:
        own = {la.name: p for la, p in zip(view.layers_of(trial), trial.plan, strict=True)}
        letters.append([own.get(name, "") for name in columns])
        cost = trial.values.get(view.cost.name)
        names.append(f"{trial.id} · {_short(cost, view)}")
    return _Map(trials, list(columns.values()), letters, names)


def _short(cost: float | None, view: SearchView) -> str:
    """A cost in few characters: `12.3 %`, `4.5 M`."""
    if cost is None:
        return "-"
    if view.cost.name.endswith("_pct"):
        return f"{cost:.1f} %"
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if cost >= limit:
            return f"{cost / limit:.3g} {suffix}"
    return f"{cost:.3g}"


def short_names(layers: Sequence[Layer]) -> list[str]:
    """Names without the parts that all of them start or end with: `0.1.first` instead of
    `stages.0.1.first.conv`."""
    parts = [layer.name.split(".") for layer in layers]
    shortest = min(map(len, parts), default=0)
    head = next((i for i in range(shortest) if len({p[i] for p in parts}) > 1), 0)
    tail = next((i for i in range(shortest - head) if len({p[-1 - i] for p in parts}) > 1), 0)
    return [".".join(p[head : len(p) - tail]) for p in parts]


def layers_figure(view: SearchView, title: str) -> go.Figure:
    """A heat map of levels: a row per point of the front, a column per layer."""
    import plotly.graph_objects as go

    figure = go.Figure()
    grid = _map(view)
    if not grid.trials or not grid.layers:
        noted(figure, EMPTY)
        return framed(figure, title, height=200)
    columns = list(range(len(grid.layers)))
    roomy = len(columns) <= LETTERS and len(grid.trials) <= LETTERS
    figure.add_heatmap(
        x=columns,
        y=list(range(len(grid.trials))),
        z=[[ORDER.index(c) if c else None for c in row] for row in grid.letters],
        zmin=-0.5,
        zmax=len(ORDER) - 0.5,
        colorscale=_steps(),
        showscale=False,
        xgap=1,
        ygap=1,
        text=grid.letters,
        texttemplate="%{text}" if roomy else "",
        customdata=[[t.id] * len(columns) for t in grid.trials],
        hovertext=[
            [_hover(view, t, la, c) for la, c in zip(grid.layers, row, strict=True)]
            for t, row in zip(grid.trials, grid.letters, strict=True)
        ],
        hovertemplate="%{hovertext}<extra></extra>",
        hoverongaps=False,
    )
    _add_legend(figure, grid)
    _add_stages(figure, grid)
    few = len(columns) <= LETTERS
    labels = short_names(grid.layers) if few else []
    step = 1 + (len(grid.names) - 1) // LETTERS
    rows = list(range(0, len(grid.names), step))
    return framed(
        figure,
        title,
        height=200 + 24 * min(len(grid.trials), LETTERS) + 7 * max(map(len, labels), default=0),
        legend={"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        margin={"l": 8, "r": 16, "t": 56, "b": 8},
        xaxis=axis(
            "layer, input first; above: stage", tickvals=columns if few else [],
            ticktext=labels, tickangle=-90, showgrid=False,
        ),
        yaxis=axis(
            "front point · cost", tickvals=rows, ticktext=[grid.names[i] for i in rows],
            showgrid=False,
        ),
    )  # fmt: skip


def _add_legend(figure: go.Figure, grid: _Map) -> None:
    """Add the levels as empty traces: a heat map has no legend of its own."""
    for level in grid.levels:
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=f"{level} {LEVELS[level]}",
            marker={"symbol": "square", "size": 12, "color": LEVEL_COLOURS[level],
                    "line": {"color": INK, "width": 1}},
        )  # fmt: skip


def _add_stages(figure: go.Figure, grid: _Map) -> None:
    """Add the names of the stages above the columns, and lines between them."""
    for name, start, end in grid.stages:
        if start:
            figure.add_vline(x=start - 0.5, line={"color": INK, "width": 2})
        figure.add_annotation(
            text=markup(name, 16), x=(start + end - 1) / 2, y=1, yref="paper", yanchor="bottom",
            showarrow=False, font={"size": 12},
        )  # fmt: skip


def _steps() -> list[tuple[float, str]]:
    """A colour scale with one constant step per level."""
    n = len(ORDER)
    edges = [(i / n, (i + 1) / n, LEVEL_COLOURS[level]) for i, level in enumerate(ORDER)]
    return [(x, colour) for a, b, colour in edges for x in (a, b)]


def _hover(view: SearchView, trial: TrialView, layer: Layer, level: str) -> str:
    """What is shown beside a cell under the mouse."""
    value = view.quality.text(trial.values.get(view.quality.name))
    lines = [
        f"{layer.name} (stage {layer.stage})" if layer.stage else layer.name,
        f"{level}: {LEVELS.get(level, 'not in this network')}",
        f"{trial.summary}, {view.quality.short} {value}",
    ]
    return "<br>".join(markup(line) for line in lines)


def layers_image(view: SearchView, title: str, path: str | Path) -> Path:
    """Write the heat map as pdf, svg or png, by the name of the file."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    grid = _map(view)
    labels = short_names(grid.layers)
    size = 9 if len(grid.layers) <= LETTERS else 5
    # Labels stand upright: the figure is as much higher as the longest one needs.
    height = 2.4 + 0.28 * min(len(grid.trials), LETTERS) + _inches(labels, size)
    width = max(6.0, min(12.0, 2.5 + 0.32 * len(grid.layers)))
    figure, axes = canvas(width, height)
    cells = [[ORDER.index(c) if c else float("nan") for c in row] for row in grid.letters]
    colours = ListedColormap([LEVEL_COLOURS[level] for level in ORDER])
    axes.imshow(
        cells, cmap=colours, vmin=-0.5, vmax=len(ORDER) - 0.5, aspect="auto", origin="lower"
    )
    if len(grid.layers) <= LETTERS and len(grid.trials) <= LETTERS:
        _letters(grid, axes)
    for name, start, end in grid.stages:
        if start:
            axes.axvline(start - 0.5, color=INK, linewidth=1.5)
        room = (width - 2) * (end - start) / len(grid.layers)
        axes.annotate(
            _fitting(name, room, 11), ((start + end - 1) / 2, 1.01),
            xycoords=("data", "axes fraction"), ha="center", va="bottom", **words(11),
        )  # fmt: skip
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=size)
    axes.set_yticks(range(len(grid.names)), grid.names, fontsize=9)
    axes.set_xlabel("layer, input first; above: stage", **words())
    # In lines as long as the rows are high.
    label = fill(f"front point · {view.cost.label}", max(24, 5 * len(grid.names)))
    axes.set_ylabel(label, **words(11))
    titled(axes, title, pad=24)
    handles = [
        Patch(facecolor=LEVEL_COLOURS[level], edgecolor=INK, label=f"{level} {LEVELS[level]}")
        for level in grid.levels
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return saved(figure, path)


def _inches(labels: Sequence[str], points: int) -> float:
    """The length of the longest label in inches."""
    return max(map(len, labels), default=0) * CHARACTER * points / 72


def _fitting(label: str, inches: float, points: int) -> str:
    """The label, cut where there is no room for it."""
    room = max(1, int(72 * inches / (CHARACTER * points)))
    return label if len(label) <= room else f"{label[: room - 1]}…"


def _letters(grid: _Map, axes: object) -> None:
    """Write the level into every cell."""
    for y, row in enumerate(grid.letters):
        for x, letter in enumerate(row):
            colour = PAPER if letter == "F" else INK
            style = {**words(8), "color": colour, "ha": "center", "va": "center"}
            axes.text(x, y, letter, **style)  # type: ignore[attr-defined]


def kept_in_full(view: SearchView) -> Sequence[tuple[str, float]]:
    """(layer, share of the points of the front that keep it in full precision)."""
    grid = _map(view)
    if not grid.letters:
        return []
    return [(la.name, s) for la, s in zip(grid.layers, grid.kept_share, strict=True)]


@FIGURES.register
class LayersKind:
    """`bitfront figure --kind layers`."""

    name = "layers"
    doc = "the level of every layer along the front"

    @staticmethod
    def draw(subject: Subject, path: Path) -> None:
        """Write the plans along the front of a search."""
        view = subject.view()
        layers_image(view, subject.titled(view.title), path)
