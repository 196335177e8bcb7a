"""The quality over two settings at once: the mean of the trials around every place, and the trials
themselves. One setting at a time is in `slices`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfront.dashboards.figures.style import INK, PAPER, axis, framed, markup, noted
from bitfront.dashboards.figures.trials.slices import (
    finished,
    is_logarithmic,
    is_number,
    scale_of,
    varying,
)
from bitfront.search.results.view import SearchView, TrialView

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Places along an axis, and the width of the neighbourhood of one, as a share of the axis.
PLACES, WIDTH = 40, 0.09
# A place with fewer trials around it than this is left empty.
LEAST_WEIGHT = 0.25
LEAST_TRIALS = 10
# Uniform in lightness, and readable for colour-blind people.
COLOURS = "Cividis"
EMPTY = "this needs ten finished trials and two settings that are numbers and differ"


def numeric(view: SearchView, importance: Mapping[str, float]) -> list[str]:
    """The settings that are numbers and differ, the most important first."""
    done = finished(view)
    names = varying(done, importance)
    return [n for n in names if all(is_number(t.params[n]) for t in done if n in t.params)]


def contour_figure(view: SearchView, x: str | None, y: str | None, title: str) -> go.Figure:
    """The picture over the settings `x` and `y`."""
    import plotly.graph_objects as go

    figure = go.Figure()
    trials = [t for t in finished(view) if x in t.params and y in t.params]
    if x is None or y is None or x == y or len(trials) < LEAST_TRIALS:
        noted(figure, EMPTY)
        return framed(figure, title, height=200)
    across, up = [t.params[x] for t in trials], [t.params[y] for t in trials]
    quality = [view.quality.shown(t.values[view.quality.name]) for t in trials]
    xs, ys = _Line(across), _Line(up)
    bar = {"title": {"text": markup(view.quality.short), "side": "right"}, "thickness": 12}
    figure.add_heatmap(
        x=xs.values, y=ys.values, z=_smoothed(xs.place(across), ys.place(up), quality),
        colorscale=COLOURS, colorbar=bar,
        reversescale=not view.quality.maximize, hoverinfo="skip",
    )  # fmt: skip
    for on_front in (False, True):
        own = [i for i, t in enumerate(trials) if (t.id in view.on_front) is on_front]
        _add_trials(figure, view, [(trials[i], across[i], up[i], quality[i]) for i in own],
                    on_front)  # fmt: skip
    return framed(
        figure,
        title,
        height=460,
        xaxis=axis(x, **scale_of(across)),
        yaxis=axis(y, **scale_of(up)),
    )


def _add_trials(
    figure: go.Figure,
    view: SearchView,
    rows: Sequence[tuple[TrialView, Any, Any, float]],
    on_front: bool,
) -> None:
    figure.add_scatter(
        x=[across for _, across, _, _ in rows],
        y=[up for _, _, up, _ in rows],
        mode="markers",
        name="on the front" if on_front else "others",
        marker={"color": PAPER if on_front else INK, "size": 9 if on_front else 4,
                "opacity": 1.0 if on_front else 0.6, "line": {"color": INK, "width": 1}},
        customdata=[t.id for t, *_ in rows],
        hovertext=[markup(f"{t.id} {t.method}: {view.quality.short} {q:.4g}")
                   for t, _, _, q in rows],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


class _Line:
    """Places along a numeric axis, from 0 to 1."""

    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = float(min(values)), float(max(values))
        self.log = is_logarithmic(values)

    @property
    def values(self) -> list[float]:
        """The numbers at the places."""
        space = np.geomspace if self.log else np.linspace
        return [float(v) for v in space(self.low, self.high, PLACES)]

    def place(self, values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Where numbers are, from 0 to 1."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        at = np.log(values) if self.log else np.asarray(values, float)
        return np.asarray((at - low) / (high - low or 1.0))


def _smoothed(x: Any, y: Any, quality: Sequence[float]) -> list[list[float | None]]:
    """The weighted mean of the trials around every place; None where there are none."""
    grid = np.linspace(0.0, 1.0, PLACES)
    near_x = np.exp(-0.5 * ((grid[:, None] - x[None]) / WIDTH) ** 2)
    near_y = np.exp(-0.5 * ((grid[:, None] - y[None]) / WIDTH) ** 2)
    weight = near_y @ near_x.T
    total = (near_y * np.asarray(quality)) @ near_x.T
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / weight
    return [
        [float(m) if w >= LEAST_WEIGHT else None for m, w in zip(*row, strict=True)]
        for row in zip(mean, weight, strict=True)
    ]
