"""Fronts of one quality and one cost: what a point is expected to add to one, and the front of an
additive model. Arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from bitfront.search.samplers.surrogate.model import Floats


@dataclass(frozen=True)
class Staircase:
    """The best quality so far as a step function of the cost, up to a reference point."""

    cost: Floats
    quality: Floats
    reference_cost: float
    reference_quality: float

    @staticmethod
    def of(quality: Floats, cost: Floats, worst: float, dearest: float) -> Staircase:
        """The staircase of the non-dominated points that are better than the reference."""
        index = staircase_index(quality, cost)
        index = index[(quality[index] > worst) & (cost[index] < dearest)]
        return Staircase(cost[index], quality[index], dearest, worst)

    def at(self, cost: Floats) -> Floats:
        """The best quality among points that cost no more."""
        steps = np.searchsorted(self.cost, cost, side="right")
        return np.concatenate([[self.reference_quality], self.quality])[steps]

    def expected_improvement(self, cost: Floats, mean: Floats, spread: Floats) -> Floats:
        """The hypervolume that points are expected to add, alpha(x) of `ask.py`: their cost is
        exact, their quality Gaussian. Over each step of the staircase beyond the cost of the point,
        the width of the step times the expected excess over its height."""
        begins = np.concatenate([[-np.inf], self.cost])
        ends = np.append(self.cost, self.reference_cost)
        heights = np.concatenate([[self.reference_quality], self.quality])
        widths = np.clip(ends[None] - np.maximum(begins[None], cost[:, None]), 0.0, None)
        z = (mean[:, None] - heights[None]) / spread[:, None]
        excess = spread[:, None] * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
        return np.asarray((widths * excess).sum(1))


def near_front(
    stairs: Staircase, quality: Floats, cost: Floats, most: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Which points a model is fitted to: all, or those nearest to the front and a random choice of
    the rest, so that an ask costs the same late in a search as early."""
    if len(quality) <= most:
        return np.arange(len(quality))
    order = np.argsort(stairs.at(cost) - quality, kind="stable")
    near = 3 * most // 4
    rest = rng.choice(order[near:], most - near, replace=False)
    return np.sort(np.concatenate([order[:near], rest]))


def staircase_index(quality: Floats, cost: Floats) -> NDArray[np.intp]:
    """Indices of the non-dominated points, cheapest first."""
    order = np.lexsort((-quality, cost))
    ranked = quality[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ranked)[:-1]])
    return np.asarray(order[ranked > before])


def additive_front(gain: Floats, cost: Floats, buckets: int = 128) -> NDArray[np.int64]:
    """The front of an additive model: the plans with the greatest sum of gains for each sum of
    costs, by dynamic programming over the cost, rounded to `buckets` (a multiple-choice knapsack).

    `gain` and `cost` are (groups, levels); returns (plans, groups) of level indices."""
    groups, levels = gain.shape
    saved = cost - cost.min(1, keepdims=True)
    unit = float(saved.max(1).sum()) / buckets or 1.0
    steps = np.rint(saved / unit).astype(np.int64)
    size = int(steps.max(1).sum()) + 1
    best = np.full(size, -np.inf)
    best[0] = 0.0
    choice = np.zeros((groups, size), dtype=np.int64)
    for group in range(groups):
        options = np.full((levels, size), -np.inf)
        for level in range(levels):
            step = steps[group, level]
            options[level, step:] = best[: size - step] + gain[group, level]
        choice[group] = options.argmax(0)
        best = options.max(0)
    reachable = np.flatnonzero(np.isfinite(best))
    ends = reachable[
        best[reachable] > np.concatenate([[-np.inf], np.maximum.accumulate(best[reachable])[:-1]])
    ]
    plans = np.zeros((len(ends), groups), dtype=np.int64)
    at = ends.copy()
    for group in reversed(range(groups)):
        plans[:, group] = choice[group, at]
        at = at - steps[group, plans[:, group]]
    return plans
