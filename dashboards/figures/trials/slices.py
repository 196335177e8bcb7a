"""The quality over one setting at a time: a small picture per setting, those that matter most
first. Two settings at once are in `contour`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from bitfront.dashboards.figures.front.chart import DECADE, ticks
from bitfront.dashboards.figures.style import INK, PALE, axis, framed, look, markup
from bitfront.dashboards.figures.trials.curves import spread_out
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_SLICES = 6
# More dots hide each other; those of the front are always drawn.
MOST_DOTS = 500
# With more words than these the axis has no room for all.
MOST_WORDS = 12


def varying(trials: Sequence[TrialView], importance: Mapping[str, float]) -> list[str]:
    """The sampled settings that differ between trials: the most important ones first, then those of
    most trials."""
    counts: dict[str, int] = {}
    values: dict[str, set[str]] = {}
    for trial in trials:
        for name, value in trial.params.items():
            counts[name] = counts.get(name, 0) + 1
            values.setdefault(name, set()).add(str(value))
    different = [name for name in counts if len(values[name]) > 1]
    return sorted(different, key=lambda n: (-importance.get(n, 0.0), -counts[n]))


def finished(view: SearchView) -> list[TrialView]:
    """The complete trials that have the quality of the figures."""
    return [
        t for t in view.trials if t.state == TrialState.COMPLETE and view.quality.name in t.values
    ]


def is_number(value: Any) -> bool:
    """Whether a setting has a place on a numeric axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def slice_figures(view: SearchView, importance: Mapping[str, float]) -> dict[str, go.Figure]:
    """A picture per setting, by its name."""
    done = finished(view)
    names = varying(done, importance)[:MOST_SLICES]
    others = spread_out([t for t in done if t.id not in view.on_front], MOST_DOTS)
    shown = [*others, *(t for t in done if t.id in view.on_front)]
    return {name: _slice(view, name, shown) for name in names}


def is_logarithmic(values: Sequence[float]) -> bool:
    """Whether numbers are best shown on a logarithmic axis: they are positive, span a decade, and
    their median is nearer to its middle than to that of a linear one."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low <= 0 or high < DECADE * low:
        return False
    middle = median(values)
    there = math.log(middle / low) / math.log(high / low)
    return abs(there - 0.5) < abs((middle - low) / (high - low) - 0.5)


def scale_of(values: Sequence[Any]) -> dict[str, Any]:
    """The layout of an axis for these values; words are in alphabetical order."""
    if not all(is_number(v) for v in values):
        words = sorted({str(v) for v in values})
        shown = words[:: -(-len(words) // MOST_WORDS) or 1]
        return {"type": "category", "categoryarray": words, "tickvals": shown,
                "ticktext": [markup(w, 14) for w in shown]}  # fmt: skip
    few = sorted(set(values))
    if len(few) > 1 and is_logarithmic(values):
        marks = few if len(few) <= 5 else [value for value, _ in ticks(few[0], few[-1])]
        return {"type": "log", "tickvals": marks, "ticktext": [f"{mark:g}" for mark in marks]}
    return {"tickvals": few} if len(few) <= 5 else {"nticks": 6}


def _slice(view: SearchView, name: str, trials: Sequence[TrialView]) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    trials = [t for t in trials if name in t.params]
    for on_front in (False, True):
        for method in view.methods:
            own = [t for t in trials if t.method == method and (t.id in view.on_front) is on_front]
            if not own:
                continue
            colour, symbol, _ = look(view.methods.index(method))
            marker: dict[str, Any] = {"color": colour, "symbol": symbol, "size": 5, "opacity": PALE}
            if on_front:
                marker |= {"size": 9, "opacity": 1.0, "line": {"color": INK, "width": 1}}
            words = not all(is_number(t.params[name]) for t in trials)
            figure.add_scatter(
                x=[str(t.params[name]) if words else t.params[name] for t in own],
                y=[view.quality.shown(t.values[view.quality.name]) for t in own],
                mode="markers",
                marker=marker,
                name=markup(method),
                customdata=[t.id for t in own],
                text=[t.id for t in own],
                hovertemplate=f"%{{text}} {markup(method)}: %{{x}}, %{{y:.4g}}<extra></extra>",
            )
    return framed(
        figure,
        "",
        height=260,
        showlegend=False,
        xaxis=axis(name, **scale_of([t.params[name] for t in trials])),
        yaxis=axis(view.quality.short or view.quality.name),
    )
