"""The Gaussian process of `free-cost` over plans and hyperparameters. It models the quality of a
point only, since the cost is known exactly. Arrays in, arrays out; what a point may add to a front
is in `fronts.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from bitfront.search.model_health import DEVIATIONS, ModelHealth

Floats = NDArray[np.float64]

# The kernel's parameters are fitted to no more rows than this: they are few.
FIT_ROWS = 120
SWEEPS = 3
JITTER = 1e-6


@dataclass(frozen=True)
class Rows:
    """Points as the model sees them, one per row."""

    levels: NDArray[np.float32]
    """(n, groups x features): the level of every group of the plan as a vector of length 1; the
    product of two of them says how much alike two levels are"""
    trend: Floats
    """(n, 2) in [0, 1]: the cost of the point, and the mean over its groups of the rank of its
    level between the cheapest (0) and the dearest (1); without a plan the logarithm of the cost"""
    numeric: Floats
    """(n, numeric parameters) in [0, 1]"""
    category: NDArray[np.int64]
    """(n, categorical parameters); -1 where one does not apply"""
    groups: int
    """G, the groups of a plan"""
    alike: float
    """c, the greatest number for which the likeness of levels less c is a covariance: 1 / L where
    L levels are alike in nothing"""
    believed: Floats
    """(n, beliefs): what each belief expects of the quality, in its standard deviations"""
    values: tuple[int, ...] = ()
    """how many values each categorical parameter has"""

    def __len__(self) -> int:
        return len(self.trend)

    @property
    def unbelieved(self) -> Rows:
        """The same without beliefs, which are about the quality alone."""
        return replace(self, believed=np.zeros((len(self), 0)))

    def take(self, index: NDArray[np.intp] | slice) -> Rows:
        return replace(
            self,
            levels=self.levels[index],
            trend=self.trend[index],
            numeric=self.numeric[index],
            category=self.category[index],
            believed=self.believed[index],
        )

    @staticmethod
    def stack(parts: list[Rows]) -> Rows:
        return replace(
            parts[0],
            levels=np.concatenate([p.levels for p in parts]),
            trend=np.concatenate([p.trend for p in parts]),
            numeric=np.concatenate([p.numeric for p in parts]),
            category=np.concatenate([p.category for p in parts]),
            believed=np.concatenate([p.believed for p in parts]),
        )


@dataclass(frozen=True)
class _Relations:
    """What the kernel needs of every pair of points, apart from its parameters."""

    trend: Floats
    """2 t . t'"""
    differing: Floats
    """h: how many groups of the plan differ, and by how much"""
    distance: list[Floats]
    """(u_i - u'_i)^2, an array per numeric parameter"""
    mismatches: Floats
    """m: how many categorical parameters differ"""
    believed: Floats
    """b . b'"""


@dataclass
class _Scales:
    """The logarithms of the kernel's parameters, each with a normal prior."""

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
    """quality = constant + trend along the cost + a term per layer + a joint term + noise.

    The quality, standardized, is a Gaussian process with the covariance

        k(x, x') = 1 + 2 a_t t.t' + 4 a_l (1 - c - h/G) + a_j exp(-h/r - s) + a_s exp(-s)
        s(x, x') = sum_i (u_i - u'_i)^2 / (2 l_i^2) + q m

    of two points x and x', where t is their place on the cost axis (`Rows.trend`), h the sum over
    the G groups of the plan of how much their levels differ (0 to 1: `likeness` in `atlas.py`), c a
    constant of the levels (`Rows.alike`), u_i their numeric parameters, the logarithm of the cost
    among them where there is no plan, and m the number of categorical parameters in which they
    differ. The five terms: a constant; a linear trend; what each level of each layer contributes on
    its own, centred over the levels (an additive kernel: Duvenaud, Nickisch and Rasmussen, 2011,
    arXiv:1112.4394); all parameters jointly, decaying with the Hamming distance of the plans (the
    overlap of categories: Ru et al., 2020, arXiv:1906.08878); and the hyperparameters alone. In
    `_Scales`: a_t "trend", a_l "layers", a_j "joint", a_s "settings", r "reach", l_i "length i",
    q "mismatch", and "noise" for the variance of a finished trial.

    With y the observations, K their covariance and N the diagonal of their noise variances, mean
    and variance at x are (Rasmussen and Williams, 2006, eq. 2.25 and 2.26)

        mu(x) = k_x^T (K + N)^-1 y,    sigma^2(x) = k(x, x) - k_x^T (K + N)^-1 k_x

    of y less its prior mean, 0 but for beliefs: what the user, another search or a selector expects
    is a function b_k, and the quality has the further part

        sum_k w_k b_k(x),   w_k ~ N(1, 1)

    with the mean sum_k b_k(x) and the covariance b(x) . b(x'). A belief that is right keeps its
    weight; that of a wrong one the trials move to 0, or below. The parameters maximize the
    logarithm of their posterior, the marginal likelihood (eq. 2.30) with log-normal priors."""

    def __init__(
        self, rows: Rows, quality: Floats, extra_noise: Floats, rng: np.random.Generator
    ) -> None:
        """`extra_noise` is the variance of a row beyond that of a finished trial."""
        self._groups, self._alike = rows.groups, rows.alike
        self._shift = float(quality.mean())
        self._scale = float(quality.std()) or 1.0
        self._rows = rows
        self._y = (quality - self._shift) / self._scale - rows.believed.sum(1)
        self._extra = extra_noise / self._scale**2
        self._scales = self._fit(rng)
        self._factor, self._weights = self._condition()

    @property
    def noise_sd(self) -> float:
        """Standard deviation of a finished trial around its expectation: the effect of the seed."""
        return float(np.sqrt(self._scales["noise"])) * self._scale

    def health(self) -> ModelHealth:
        """How well each measured trial is predicted by the model without it, at the same
        parameters: with d the diagonal of (K + N)^-1 and w = (K + N)^-1 y,

            mu_-i = y_i - w_i / d_i,    sigma_-i^2 = 1 / d_i

        (Rasmussen and Williams, 2006, eq. 5.12)."""
        n = len(self._weights)
        inverse = solve_triangular(self._factor[:n, :n], np.eye(n), lower=True, check_finite=False)
        precision = (inverse**2).sum(0)
        measured = self._extra == 0
        told = self._y + self._rows.believed[:n].sum(1)
        y, count = told[measured], int(measured.sum())
        if count < 3 or not y.std():
            return ModelHealth(count, 0.0, 0.0, 0.0)
        missed = (self._weights / precision)[measured]
        others = (y.sum() - y) / (count - 1)
        inside = np.abs(missed) * np.sqrt(precision[measured]) <= DEVIATIONS
        rank, guessed = (
            np.argsort(np.argsort(v, kind="stable")).astype(float) for v in (y, y - missed)
        )
        return ModelHealth(
            count,
            round(float(np.corrcoef(rank, guessed)[0, 1]), 4),
            round(1 - float((missed**2).sum() / ((y - others) ** 2).sum()), 4),
            round(float(inside.mean()), 4),
        )

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """mu and sigma of the quality without noise."""
        cross = self._covariances(rows, self._rows)
        mean = cross[:, : len(self._weights)] @ self._weights
        solved = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        own = self._own_variance(rows)
        spread = np.sqrt(np.maximum(own - np.einsum("ij,ij->j", solved, solved), 1e-12))
        mean += rows.believed.sum(1)
        return mean * self._scale + self._shift, spread * self._scale

    def expected(self, rows: Rows) -> Floats:
        """mu alone, at a fraction of the cost."""
        cross = self._covariances(rows, self._rows.take(slice(0, len(self._weights))))
        mean = np.asarray(cross @ self._weights) + rows.believed.sum(1)
        return np.asarray(mean * self._scale + self._shift)

    def draws(self, rows: Rows, count: int, rng: np.random.Generator) -> Floats:
        """(count, rows): measurements as the model expects them, all rows drawn together. Points
        that it believes in are drawn too."""
        n = len(self._weights)
        cross = self._covariances(self._rows.take(slice(0, n)), rows)
        half = solve_triangular(self._factor[:n, :n], cross, lower=True, check_finite=False)
        own = self._covariances(rows, rows) - half.T @ half
        factor = _cholesky(own, self._scales["noise"])
        mean = cross.T @ self._weights + rows.believed.sum(1)
        drawn = mean + rng.normal(size=(count, len(rows))) @ factor.T
        return np.asarray(drawn * self._scale + self._shift)

    def believe(self, rows: Rows) -> None:
        """Add points that are being trained as if their expectation were their result, so that the
        next proposal differs from them. That changes no expectation: the weights stay, and the
        Cholesky factor gets the rows (B^T, chol(D - B^T B)), with B the solution of L B = k."""
        cross = self._covariances(self._rows, rows)
        below = solve_triangular(self._factor, cross, lower=True, check_finite=False)
        own = self._covariances(rows, rows) - below.T @ below
        corner = _cholesky(own, self._scales["noise"])
        right = np.zeros((len(self._factor), len(corner)))
        self._factor = np.block([[self._factor, right], [below.T, corner]])
        self._rows = Rows.stack([self._rows, rows])

    def _condition(self) -> tuple[Floats, Floats]:
        """The Cholesky factor of K + N, and (K + N)^-1 y."""
        kernel = self._covariances(self._rows, self._rows)
        factor = _cholesky(kernel, self._scales["noise"] + self._extra)
        half = solve_triangular(factor, self._y, lower=True, check_finite=False)
        return factor, solve_triangular(factor.T, half, check_finite=False)

    def _covariances(self, a: Rows, b: Rows) -> Floats:
        """k of all pairs at the fitted parameters. They are folded into the coordinates of the
        points, so that s is one product of matrices instead of an array per parameter."""
        scales = self._scales
        differing = np.maximum(self._groups - (a.levels @ b.levels.T).astype(np.float64), 0.0)
        kernel = (2 * scales["trend"]) * (a.trend @ b.trend.T)
        constant = 1.0
        if self._groups:
            each = 4 * scales["layers"]
            kernel -= differing * (each / self._groups)
            constant += each * (1 - self._alike)
        kernel += constant
        if a.believed.shape[1]:
            kernel += a.believed @ b.believed.T
        differing *= -1 / scales["reach"]
        if "settings" in scales.names:
            left, right = self._placed(a), self._placed(b)
            near = left @ right.T
            near *= 2.0
            near -= (left**2).sum(1)[:, None]
            near -= (right**2).sum(1)[None]
            np.minimum(near, 0.0, out=near)
            differing += near
            np.exp(near, out=near)
            near *= scales["settings"]
            kernel += near
        np.exp(differing, out=differing)
        differing *= scales["joint"]
        kernel += differing
        return kernel

    def _placed(self, rows: Rows) -> Floats:
        """Coordinates of the settings whose squared distance is s."""
        lengths = [self._scales[f"length {i}"] for i in range(rows.numeric.shape[1])]
        parts = [rows.numeric / (np.sqrt(2.0) * np.array(lengths))]
        for column, count in zip(rows.category.T, rows.values, strict=True):
            parts.append(np.sqrt(self._scales["mismatch"] / 2) * np.eye(count + 1)[column])
        return np.concatenate(parts, axis=1)

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
            believed=a.believed @ b.believed.T,
        )

    def _kernel(self, relations: _Relations, scales: _Scales) -> Floats:
        """k of every pair."""
        joint = relations.differing * (-1 / scales["reach"])
        kernel = scales["trend"] * relations.trend + relations.believed
        constant = 1.0
        if self._groups:
            each = 4 * scales["layers"]
            kernel -= relations.differing * (each / self._groups)
            constant += each * (1 - self._alike)
        kernel += constant
        if "settings" in scales.names:
            settings = np.zeros(joint.shape)
            for i, distance in enumerate(relations.distance):
                settings -= distance * (1 / (2 * scales[f"length {i}"] ** 2))
            if "mismatch" in scales.names:
                settings -= scales["mismatch"] * relations.mismatches
            joint += settings
            np.exp(settings, out=settings)
            settings *= scales["settings"]
            kernel += settings
        np.exp(joint, out=joint)
        joint *= scales["joint"]
        kernel += joint
        return kernel

    def _own_variance(self, rows: Rows) -> Floats:
        """k(x, x) of every row."""
        own = (
            1.0
            + (rows.believed**2).sum(1)
            + self._scales["joint"]
            + 2 * self._scales["trend"] * (rows.trend**2).sum(1)
        )
        if self._groups:
            own += 4 * self._scales["layers"] * (1 - self._alike)
        if "settings" in self._scales.names:
            own += self._scales["settings"]
        return np.asarray(own)

    def _fit(self, rng: np.random.Generator) -> _Scales:
        """The parameters by coordinate search: they are few, and a likelihood takes a
        millisecond."""
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
        """The logarithm of the posterior of the parameters, but for a constant."""
        factor = _cholesky(self._kernel(relations, scales), scales["noise"] + extra)
        half = solve_triangular(factor, y, lower=True, check_finite=False)
        return float(-0.5 * half @ half - np.log(np.diag(factor)).sum()) + scales.log_prior


def _cholesky(kernel: Floats, noise: Floats | float) -> Floats:
    """The Cholesky factor of kernel plus noise; where rounding makes that indefinite, of a little
    more noise."""
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
