"""The chance that a point keeps the limits on what is measured, from a model of every limited
metric. Arrays in, arrays out; what is made of it is in `ask.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import ndtr

from bitfront.search.samplers.surrogate.model import Floats, QualityModel, Rows

if TYPE_CHECKING:
    from bitfront.search.config.sections.bounds import Limit

# Fewer trials than this say nothing about a metric.
LEAST = 3


class Chance(Protocol):
    """A chance of every row."""

    def chance(self, rows: Rows) -> Floats: ...


class Together:
    """The chance that several things are true that have nothing to do with each other."""

    def __init__(self, parts: Sequence[Chance]) -> None:
        self._parts = parts

    def chance(self, rows: Rows) -> Floats:
        found = np.ones(len(rows))
        for part in self._parts:
            found = found * part.chance(rows)
        return found


class KeepingModel:
    """The chance that a trial at x measures a value within limits low and high, with the mean mu
    and the deviation sigma of a model of that metric and the variance s^2 of its noise:

        p(x) = Phi((high - mu) / r) - Phi((low - mu) / r),   r^2 = sigma^2 + s^2

    (Gelbart, Snoek and Adams, 2014, arXiv:1403.5607, for limits that are modelled beside the
    objective)."""

    def __init__(self, model: QualityModel, low: float, high: float) -> None:
        self._model, self._low, self._high = model, low, high

    def chance(self, rows: Rows) -> Floats:
        mean, spread = self._model.predict(rows.unbelieved)
        width = np.sqrt(spread**2 + self._model.noise_sd**2)
        return np.asarray(ndtr((self._high - mean) / width) - ndtr((self._low - mean) / width))


def bounds_of(limit: Limit) -> tuple[float, float]:
    """The least and the greatest value that keep a limit."""
    low = -np.inf if limit.min is None else limit.min
    return low, np.inf if limit.max is None else limit.max


def kept(limits: Mapping[str, Limit], measured: Floats) -> np.ndarray:
    """Which trials keep all limits, (trials, limits) in their order; what was not measured keeps
    none."""
    found = np.ones(len(measured), bool)
    for column, limit in zip(measured.T, limits.values(), strict=True):
        low, high = bounds_of(limit)
        found &= (column >= low) & (column <= high)
    return found


def keeping_models(
    limits: Mapping[str, Limit], rows: Rows, measured: Floats, rng: np.random.Generator
) -> list[Chance]:
    """A model for every limit that enough trials tell of; `measured` is (rows, limits)."""
    found: list[Chance] = []
    for column, limit in zip(measured.T, limits.values(), strict=True):
        known = np.flatnonzero(np.isfinite(column))
        if len(known) >= LEAST:
            model = QualityModel(
                rows.take(known).unbelieved, column[known], np.zeros(len(known)), rng
            )
            found.append(KeepingModel(model, *bounds_of(limit)))
    return found
