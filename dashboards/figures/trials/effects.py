"""What every layer, method and setting does to the quality, other things being equal: the effects
in a linear model of all finished trials, and a picture of those of the layers. Sentences made of
them are in `pages.insights`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bitfront.dashboards.figures.networks.layers import short_names
from bitfront.dashboards.figures.style import DOMINATED, INK, PALETTE, axis, framed, markup, noted
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView
from bitfront.trainables.plan import BINARY_STEPS

if TYPE_CHECKING:
    import plotly.graph_objects as go

# A model of fewer trials for each of its numbers says nothing.
LEAST_TRIALS_EACH = 1.5
# The penalty on the effects, in trials: it decides where plans hardly differ.
RIDGE = 0.01
LAYER = "layer "
EMPTY = "too few finished trials for an effect of every layer"


class Effect(NamedTuple):
    """What a change does to the quality, in the unit of the ledger."""

    change: float
    error: float
    """standard error"""


def effects_figure(view: SearchView, title: str) -> go.Figure:
    """What it does to the quality to make each layer binary: a bar per layer in the order of the
    network, with its standard error."""
    import plotly.graph_objects as go

    found = effects_of(view)
    layers = {la.name: la for t in view.trials for la in view.layers_of(t)}
    known = [(la, found[LAYER + name]) for name, la in layers.items() if LAYER + name in found]
    scale = 100 if view.quality.percent else 1
    figure = go.Figure()
    if known:
        figure.add_bar(
            x=list(range(len(known))),
            y=[scale * effect.change for _, effect in known],
            error_y={"type": "data", "array": [scale * e.error for _, e in known], "width": 2,
                     "thickness": 1.2, "color": INK},
            marker_color=[_colour(effect, view.quality.maximize) for _, effect in known],
            hovertext=[markup(f"{la.stage} {la.name}") for la, _ in known],
            hovertemplate="%{hovertext}: %{y:+.3g} ± %{error_y.array:.2g}<extra></extra>",
        )  # fmt: skip
    else:
        noted(figure, EMPTY)
    unit = ", points" if view.quality.percent else ""
    shown = _named(short_names([layer for layer, _ in known]))
    return framed(
        figure,
        title,
        height=340 if known else 200,
        showlegend=False,
        bargap=0.25,
        xaxis=axis("layer, from the input on", **shown),
        yaxis=axis(f"{view.quality.short} if it is binary{unit}", zeroline=True, zerolinecolor=INK),
    )


def _colour(effect: Effect, maximize: bool) -> str:
    """Orange where it costs quality, blue where it does not, pale where that is not clear."""
    if abs(effect.change) < 2 * effect.error:
        return DOMINATED
    return PALETTE[0] if (effect.change > 0) is maximize else PALETTE[1]


def _named(names: Sequence[str]) -> dict[str, object]:
    """Ticks with the names of layers; of many only every so many."""
    step = -(-len(names) // 24) or 1
    shown = list(range(0, len(names), step))
    short = [name if len(name) <= 18 else f"…{name[-17:]}" for name in names]
    return {"tickvals": shown, "ticktext": [markup(short[i]) for i in shown], "tickangle": -45}


def effects_of(view: SearchView) -> dict[str, Effect]:
    """The effects on the quality in a linear model of all finished trials (ridge regression): of
    every layer made binary, of every method, of doubling every positive number. Empty where there
    are too few trials for so many effects."""
    done = [
        t for t in view.trials if t.state == TrialState.COMPLETE and view.quality.name in t.values
    ]
    rows = [_features(view, trial) for trial in done]
    names = sorted({name for row in rows for name in row})
    if len(done) < LEAST_TRIALS_EACH * (len(names) + 1) or not names:
        return {}
    x = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    y = np.array([trial.values[view.quality.name] for trial in done])
    x, y = x - x.mean(axis=0), y - y.mean()
    varied = x.std(axis=0) > 0
    names, x = [name for name, v in zip(names, varied, strict=True) if v], x[:, varied]
    inverse = np.linalg.inv(x.T @ x + RIDGE * np.eye(len(names)))
    slopes = inverse @ x.T @ y
    left = y - x @ slopes
    freedom = max(1.0, len(done) - 1 - float(np.trace(x @ inverse @ x.T)))
    errors = np.sqrt(np.diag(inverse) * float(left @ left) / freedom)
    return {n: Effect(float(s), float(e)) for n, s, e in zip(names, slopes, errors, strict=True)}


def _features(view: SearchView, trial: TrialView) -> dict[str, float]:
    """A trial as numbers: whether each layer is binary, its method where one is, logarithms of its
    settings."""
    found = {
        f"layer {layer.name}": float(BINARY_STEPS.get(letter, 1.0) >= 1)
        for layer, letter in zip(view.layers_of(trial), trial.plan, strict=True)
    }
    if any(found.values()):
        found[f"method {trial.method}"] = 1.0
    for name, text in trial.settings.items():
        try:
            number = float(text)
        except ValueError:
            continue
        if number > 0:
            found[f"log2 {name}"] = math.log2(number)
    return found
