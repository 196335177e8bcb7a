"""What is expected of paused trials: the hypervolume they add if they are trained to their end, by
the model that an ask has fitted. Which of them is taken up is decided in `deciding.pausing`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitfront.search.samplers.surrogate.fronts import Staircase
from bitfront.search.samplers.surrogate.keeping import Chance
from bitfront.search.samplers.surrogate.model import Floats, QualityModel, Rows
from bitfront.search.samplers.surrogate.past import Past

# So many finished trials say by how much extrapolations miss.
LEAST_MISSES = 8
Promises = tuple[float, dict[int, float]]
"""The expected gain of the best new point, and that of every paused trial by its number."""


def promises(
    past: Past,
    useful: NDArray[np.intp],
    rows: Rows,
    cost: Floats,
    model: QualityModel,
    stairs: Staircase,
    spread: float,
    success: Chance | None,
    caution: float,
    new: float,
) -> Promises:
    """What a model promises that has been fitted to the trials `useful`, whose rows and costs are
    the first of `rows` and `cost`. The quality of a paused trial at its rung, extrapolated to the
    end, is one of the model's observations, with the noise of the extrapolation."""
    numbers = past.numbers[useful]
    resting = np.flatnonzero([int(number) in past.paused for number in numbers])
    if not len(resting):
        return new, {}
    here = rows.take(resting)
    mean, deviation = model.predict(here)
    gain = stairs.expected_improvement(cost[resting], mean, spread * deviation)
    if success is not None:
        gain = gain * success.chance(here) ** caution
    return new, dict(zip(numbers[resting].tolist(), gain.tolist(), strict=True))


def with_misses(
    past: Past,
    weights: Floats,
    useful: NDArray[np.intp],
    rows: Rows,
    quality: Floats,
    noise: Floats,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Qualities and noise variances of the trials `useful`, of which `rows` are the first. What an
    extrapolation from a rung misses is no noise: plans that learn fast at first are alike. So a
    Gaussian process over the points of finished trials says by how much the end is above it, and
    with which variance (the second step of recursive co-kriging: Le Gratiet and Garnier, 2014,
    doi:10.1615/Int.J.UncertaintyQuantification.2014006914)."""
    quality, noise = quality.copy(), noise.copy()
    open_ = ~past.finished[useful]
    for epochs in set(past.lengths[useful][open_].tolist()):
        missed = past.missed(weights, epochs)[useful]
        known = np.flatnonzero(np.isfinite(missed))
        if len(known) < LEAST_MISSES:
            continue
        model = QualityModel(rows.take(known), missed[known], np.zeros(len(known)), rng)
        here = np.flatnonzero(open_ & (past.lengths[useful] == epochs))
        mean, deviation = model.predict(rows.take(here))
        quality[here] += mean
        noise[here] = deviation**2 + model.noise_sd**2
    return quality, noise
