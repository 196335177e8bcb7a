"""Parallel coordinates: sampled settings, cost and quality of every finished trial. Which setting
matters how much is in `importance`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.style import INK, axis, framed, look, markup, noted
from bitfront.dashboards.figures.trials.curves import spread_out
from bitfront.dashboards.figures.trials.methods import EMPTY
from bitfront.dashboards.figures.trials.slices import is_logarithmic, is_number, varying
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView

if TYPE_CHECKING:
    import plotly.graph_objects as go


MOST_LINES, MOST_AXES = 300, 10


def coordinates_figure(view: SearchView, title: str) -> go.Figure:
    """A vertical axis per sampled setting, for the cost and for the quality; a line per trial. A
    click on a method in the legend hides its lines. Made of ordinary lines: Plotly's `parcoords`
    needs WebGL, which the browser of a reader may not have."""
    import plotly.graph_objects as go

    figure = go.Figure()
    finished = [t for t in view.trials if t.state == TrialState.COMPLETE]
    names = [*varying(finished, {})[:MOST_AXES], view.cost.name, view.quality.name]
    scales = {name: _Scale([_value(t, name) for t in finished]) for name in names}
    if not finished:
        noted(figure, EMPTY)
        return framed(figure, title, height=200)
    others = [t for t in finished if t.id not in view.on_front]
    shown = [*spread_out(others, MOST_LINES), *(t for t in finished if t.id in view.on_front)]
    for on_front in (False, True):
        for method in view.methods:
            own = [t for t in shown if t.method == method]
            chosen = [t for t in own if (t.id in view.on_front) is on_front]
            if not chosen:
                continue
            # One entry per method in the legend: of its trials on the front, where it has any.
            named = on_front or len(chosen) == len(own)
            _add_lines(figure, view, chosen, scales, {"legend": named, "front": on_front})
    for i, name in enumerate(names):
        figure.add_vline(x=i, line={"color": INK, "width": 1}, layer="below")
        for value, text in scales[name].ticks(view, name):
            figure.add_annotation(
                x=i, y=value, text=markup(text, 12), showarrow=False, font={"size": 10},
                xanchor="left", xshift=3, bgcolor="rgba(128,128,128,0.15)",
            )  # fmt: skip
    return framed(
        figure,
        title,
        height=480,
        hovermode="closest",
        xaxis=axis(
            "", tickvals=list(range(len(names))), ticktext=[markup(n, 14) for n in names],
            showgrid=False, range=[-0.3, len(names) - 0.4], tickangle=-35,
        ),
        yaxis={"visible": False, "range": [-0.08, 1.08]},
    )  # fmt: skip


def _add_lines(
    figure: go.Figure,
    view: SearchView,
    trials: Sequence[TrialView],
    scales: dict[str, _Scale],
    shown: dict[str, bool],
) -> None:
    """The lines of one method as one trace, with gaps between trials."""
    method, names = trials[0].method, list(scales)
    colour, _, _ = look(view.methods.index(method))
    x: list[int | None] = []
    y: list[float | None] = []
    hover: list[str | None] = []
    ids: list[str | None] = []
    for trial in trials:
        x += [*range(len(names)), None]
        y += [*(scales[n].place(_value(trial, n)) for n in names), None]
        hover += [*(_hover(trial, n, view) for n in names), None]
        ids += [*[trial.id] * len(names), None]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+markers",
        name=markup(method),
        legendgroup=method,
        showlegend=shown["legend"],
        opacity=1.0 if shown["front"] else 0.25,
        line={"color": colour, "width": 2.2 if shown["front"] else 1},
        marker={"size": 5 if shown["front"] else 3},
        customdata=ids,
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
    )


class _Scale:
    """Positions of values on a vertical axis, from 0 to 1: numbers on a linear scale, or on a
    logarithmic one (`slices.is_logarithmic`); words in alphabetical order."""

    def __init__(self, values: Sequence[Any]) -> None:
        known = [v for v in values if v is not None]
        self.numeric = bool(known) and all(is_number(v) for v in known)
        self.words = [] if self.numeric else sorted({str(v) for v in known})
        numbers = [float(v) for v in known] if self.numeric else []
        self.low, self.high = min(numbers, default=0.0), max(numbers, default=1.0)
        self.log = is_logarithmic(numbers)

    def place(self, value: Any) -> float | None:
        """The position of a value; None where a trial does not have it."""
        if value is None:
            return None
        if not self.numeric:
            return self.words.index(str(value)) / max(1, len(self.words) - 1)
        low, high, at = self.low, self.high, float(value)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return 0.5 if high == low else (at - low) / (high - low)

    def ticks(self, view: SearchView, name: str) -> list[tuple[float, str]]:
        """(position, text) of the labels: all words, or the smallest and the largest number."""
        if not self.numeric:
            return [(i / max(1, len(self.words) - 1), word) for i, word in enumerate(self.words)]
        ends = [self.low] if self.low == self.high else [self.low, self.high]
        shown = view.quality.shown if name == view.quality.name else float
        return [(self.place(v) or 0.0, f"{shown(v):.4g}") for v in ends]


def _value(trial: TrialView, name: str) -> Any:
    """A sampled setting, a cost or a metric of a trial; None where it has none of this name."""
    return trial.params.get(name, trial.values.get(name))


def _hover(trial: TrialView, name: str, view: SearchView) -> str:
    """What is shown beside a trial at an axis, under the mouse."""
    value = _value(trial, name)
    if name == view.quality.name:
        text = view.quality.text(value)
    else:
        text = f"{value:.4g}" if is_number(value) else str(value)
    return markup(f"{trial.id} {trial.method}: {name} {text}")
