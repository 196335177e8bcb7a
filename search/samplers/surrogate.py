"""A Gaussian process over plans and hyperparameters, and what it says a point may add to a front.

It models the quality of a point only: the cost is known exactly (docs/design.md 5). Arrays in,
arrays out; no trial, space or study is known here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtr

Floats = NDArray[np.float64]

# The kernel's parameters are fitted on no more rows than this: they are few, and settle early.
FIT_ROWS = 120
SWEEPS = 3
JITTER = 1e-6


@dataclass(frozen=True)
class Rows:
    """Points as a model sees them, one a row."""

    levels: NDArray[np.float32]
    """(n, groups x levels) one-hot: the level of every group of the plan"""
    trend: Floats
    """(n, 2) in [0, 1]: the cost of the point, and how dear its levels are on average"""
    numeric: Floats
    """(n, numeric parameters) in [0, 1]"""
    category: NDArray[np.int64]
    """(n, categorical parameters)"""

    def __len__(self) -> int:
        return len(self.trend)

    def take(self, index: NDArray[np.intp] | slice) -> Rows:
        return Rows(
            self.levels[index], self.trend[index], self.numeric[index], self.category[index]
        )

    @staticmethod
    def stack(parts: list[Rows]) -> Rows:
        return Rows(
            np.concatenate([p.levels for p in parts]),
            np.concatenate([p.trend for p in parts]),
            np.concatenate([p.numeric for p in parts]),
            np.concatenate([p.category for p in parts]),
        )


@dataclass(frozen=True)
class _Relations:
    """How alike two sets of points are, before the kernel's parameters are known."""

    trend: Floats
    differing: Floats
    """how many groups of the plan differ"""
    distance: list[Floats]
    """squared, one array a numeric parameter"""
    mismatches: Floats
    """how many categorical parameters differ"""


@dataclass
class _Scales:
    """The kernel's parameters, as logarithms, with the priors they are drawn to."""

    names: list[str]
    values: Floats
    centre: Floats
    spread: Floats

    @staticmethod
    def start(groups: int, numeric: int, categories: int) -> _Scales:
        # name: (prior median, prior spread of the logarithm)
        priors = {
            "trend": (1.0, 1.5),
            "layers": (1.0, 1.5),
            "joint": (0.3, 1.5),
            "reach": (max(groups, 4) / 4, 1.0),
            "noise": (0.003, 2.0),
        }
        if numeric + categories:
            priors["settings"] = (0.3, 1.5)
        for i in range(numeric):
            priors[f"length {i}"] = (0.5, 0.8)
        if categories:
            priors["mismatch"] = (0.7, 1.0)
        centre = np.log([median for median, _ in priors.values()])
        spread = np.array([spread for _, spread in priors.values()])
        return _Scales(list(priors), centre.copy(), centre, spread)

    def __getitem__(self, name: str) -> float:
        return float(np.exp(self.values[self.names.index(name)]))

    def moved(self, index: int, step: float) -> _Scales:
        values = self.values.copy()
        values[index] += step
        return _Scales(self.names, values, self.centre, self.spread)

    @property
    def log_prior(self) -> float:
        return float(-0.5 * np.sum(((self.values - self.centre) / self.spread) ** 2))


class QualityModel:
    """quality = constant + trend along the cost + a part a layer + everything jointly + noise.

    A layer's part is what binarizing it costs on average; the joint part decays with the number
    of layers in which two plans differ, and with the distance of their hyperparameters. Parameters
    of the kernel are fitted by their marginal likelihood."""

    def __init__(
        self, rows: Rows, quality: Floats, extra_noise: Floats, rng: np.random.Generator
    ) -> None:
        """`extra_noise` is the variance a row has beyond that of a finished trial."""
        self._groups = round(float(rows.levels[0].sum()))
        self._levels = rows.levels.shape[1] // max(1, self._groups)
        self._shift = float(quality.mean())
        self._scale = float(quality.std()) or 1.0
        self._rows = rows
        self._y = (quality - self._shift) / self._scale
        self._extra = extra_noise / self._scale**2
        self._scales = self._fit(rng)
        self._condition()

    @property
    def noise_sd(self) -> float:
        """Spread of a finished trial around its expectation: what another seed would change."""
        return float(np.sqrt(self._scales["noise"])) * self._scale

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the quality, noise not counted."""
        cross = self._kernel(self._relations(rows, self._rows), self._scales)
        mean = cross @ self._weights
        solved = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        own = self._own_variance(rows)
        spread = np.sqrt(np.maximum(own - np.einsum("ij,ij->j", solved, solved), 1e-12))
        return mean * self._scale + self._shift, spread * self._scale

    def believe(self, rows: Rows) -> None:
        """Take the expectation of points that are being trained for their result, so that the next
        proposal goes elsewhere."""
        mean, _ = self.predict(rows)
        self._rows = Rows.stack([self._rows, rows])
        self._y = np.append(self._y, (mean - self._shift) / self._scale)
        self._extra = np.append(self._extra, np.zeros(len(rows)))
        self._condition()

    def _condition(self) -> None:
        kernel = self._kernel(self._relations(self._rows, self._rows), self._scales)
        self._factor = _cholesky(kernel, self._scales["noise"] + self._extra)
        half = solve_triangular(self._factor, self._y, lower=True, check_finite=False)
        self._weights = solve_triangular(self._factor.T, half, check_finite=False)

    def _relations(self, a: Rows, b: Rows) -> _Relations:
        same = (a.levels @ b.levels.T).astype(np.float64)
        mismatches = np.zeros(same.shape)
        for i in range(a.category.shape[1]):
            mismatches += a.category[:, i, None] != b.category[None, :, i]
        return _Relations(
            trend=2 * (a.trend @ b.trend.T),
            differing=self._groups - same,
            distance=[
                (a.numeric[:, i, None] - b.numeric[None, :, i]) ** 2
                for i in range(a.numeric.shape[1])
            ],
            mismatches=mismatches,
        )

    def _kernel(self, relations: _Relations, scales: _Scales) -> Floats:
        joint = -relations.differing / scales["reach"]
        settings: Floats | None = None
        if "settings" in scales.names:
            settings = np.zeros(joint.shape)
            for i, distance in enumerate(relations.distance):
                settings -= distance / (2 * scales[f"length {i}"] ** 2)
            if "mismatch" in scales.names:
                settings -= scales["mismatch"] * relations.mismatches
            joint = joint + settings
        kernel = 1.0 + scales["trend"] * relations.trend
        if self._groups:
            # Centred over the levels: 2 for equal plans of two levels, -2 for opposite ones.
            share = relations.differing / self._groups
            kernel += 4 * scales["layers"] * (1 - 1 / self._levels - share)
        kernel += scales["joint"] * np.exp(joint)
        if settings is not None:
            kernel += scales["settings"] * np.exp(settings)
        return kernel

    def _own_variance(self, rows: Rows) -> Floats:
        own = 1.0 + self._scales["joint"] + 2 * self._scales["trend"] * (rows.trend**2).sum(1)
        if self._groups:
            own += 4 * self._scales["layers"] * (1 - 1 / self._levels)
        if "settings" in self._scales.names:
            own += self._scales["settings"]
        return np.asarray(own)

    def _fit(self, rng: np.random.Generator) -> _Scales:
        """Coordinate search: few parameters, a likelihood of a millisecond, no gradients."""
        rows, y, extra = self._rows, self._y, self._extra
        if len(y) > FIT_ROWS:
            chosen = np.sort(rng.choice(len(y), FIT_ROWS, replace=False))
            rows, y, extra = rows.take(chosen), y[chosen], extra[chosen]
        relations = self._relations(rows, rows)
        scales = _Scales.start(self._groups, rows.numeric.shape[1], rows.category.shape[1])
        best = self._likelihood(relations, y, extra, scales)
        for sweep in range(SWEEPS):
            for index in range(len(scales.names)):
                step = 0.8 * float(scales.spread[index]) * 0.6**sweep
                for signed in (step, -step):
                    moved = scales.moved(index, signed)
                    value = self._likelihood(relations, y, extra, moved)
                    if value > best:
                        scales, best = moved, value
                        break
        return scales

    def _likelihood(
        self, relations: _Relations, y: Floats, extra: Floats, scales: _Scales
    ) -> float:
        factor = _cholesky(self._kernel(relations, scales), scales["noise"] + extra)
        half = solve_triangular(factor, y, lower=True, check_finite=False)
        return float(-0.5 * half @ half - np.log(np.diag(factor)).sum()) + scales.log_prior


def _cholesky(kernel: Floats, noise: Floats | float) -> Floats:
    """The factor of kernel and noise; rounding is made up for by a little more noise."""
    diagonal = np.diag_indices_from(kernel)
    size = float(np.abs(kernel[diagonal]).mean())
    for more in (JITTER, 1e-4 * size, 1e-2 * size):
        matrix = kernel.copy()
        matrix[diagonal] += noise + more
        try:
            return np.asarray(np.linalg.cholesky(matrix))
        except np.linalg.LinAlgError:
            continue
    raise ValueError("the kernel is not positive definite")


@dataclass(frozen=True)
class Staircase:
    """The best quality so far as a function of the cost, up to a reference point."""

    cost: Floats
    quality: Floats
    reference_cost: float
    reference_quality: float

    @staticmethod
    def of(quality: Floats, cost: Floats, worst: float, dearest: float) -> Staircase:
        index = staircase_index(quality, cost)
        index = index[(quality[index] > worst) & (cost[index] < dearest)]
        return Staircase(cost[index], quality[index], dearest, worst)

    def at(self, cost: Floats) -> Floats:
        """The best quality among points that cost no more."""
        steps = np.searchsorted(self.cost, cost, side="right")
        return np.concatenate([[self.reference_quality], self.quality])[steps]

    def expected_improvement(self, cost: Floats, mean: Floats, spread: Floats) -> Floats:
        """Hypervolume a point is expected to add: its cost is exact, its quality Gaussian. Over
        each step of the staircase that the point is not dearer than, the step's width times the
        expected excess over its height."""
        begins = np.concatenate([[-np.inf], self.cost])
        ends = np.append(self.cost, self.reference_cost)
        heights = np.concatenate([[self.reference_quality], self.quality])
        widths = np.clip(ends[None] - np.maximum(begins[None], cost[:, None]), 0.0, None)
        z = (mean[:, None] - heights[None]) / spread[:, None]
        excess = spread[:, None] * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
        return np.asarray((widths * excess).sum(1))


def staircase_index(quality: Floats, cost: Floats) -> NDArray[np.intp]:
    """Indices of the non-dominated points, cheapest first."""
    order = np.lexsort((-quality, cost))
    ranked = quality[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ranked)[:-1]])
    return np.asarray(order[ranked > before])


def additive_front(gain: Floats, cost: Floats, buckets: int = 128) -> NDArray[np.int64]:
    """The plans that are best at each cost if every layer's part in quality and cost adds up:
    the exact front of the additive model by dynamic programming over the cost in `buckets`.

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
