"""The chance that training succeeds at a point, learned from the trials that failed for a reason
of their point. Arrays in, arrays out; what is made of it is in `ask.py`."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import expit

from bitfront.search.samplers.surrogate.model import Floats, Rows

# The logit of the prior chance of success, and its variance.
HOPE, DOUBT = 2.0, 4.0
# The inverse gamma prior of the variance of a feature's weights: shape and scale.
SHAPE, SCALE = 0.1, 0.3
# Rounds in which these variances are fitted; Newton steps in the first and last of them, and in
# those between, which begin where the one before ended.
ROUNDS, STEPS, AGAIN = 8, 8, 2
# The longest Newton step of a logit.
FURTHEST = 3.0
# Places in the range of a number at which success may end, and how sharply.
CLIFFS = np.linspace(0.05, 0.95, 19)
SHARPNESS = 0.02
# At most so many failed, and so many other trials are looked at, the latest.
MOST = 100


class SuccessModel:
    """The chance of success at x, a logistic regression with sparse weights:

        p(x) = s(f(x)),   f(x) = m + b + sum_j w_j phi_j(x),   w_j ~ N(0, v_j),   1 / v ~ Gamma

    with s(f) = 1 / (1 + exp(-f)) and m = HOPE. The features phi are the levels of every group of
    the plan, the values of categories, steps at CLIFFS along every number, and the place on the
    cost axis. A sum of them can say "either of two layers" as well as "high rates with one method".
    The levels of a group share their v, as do the values of a category; every v is fitted by
    expectation maximization (MacKay's automatic relevance determination; Bishop, 2006, ch. 7.2), so
    that few features explain the failures: those that explain none end near zero. The posterior
    of the weights is Laplace's approximation (Rasmussen and Williams, 2006, algorithm 3.1), and

        p(x) = s(mu(x) / sqrt(1 + pi sigma^2(x) / 8))      (MacKay, 1992, eq. 10)

    with the mean mu and variance sigma^2 of f there."""

    def __init__(self, rows: Rows, succeeded: Floats) -> None:
        """`succeeded` is 1 where a trial succeeded, 0 where it failed; in the order of rows."""
        failed = np.flatnonzero(succeeded == 0)[-MOST:]
        others = np.flatnonzero(succeeded == 1)[-MOST:]
        chosen = np.sort(np.concatenate([failed, others]))
        rows, self._y = rows.take(chosen), succeeded[chosen]
        features = _features(rows)
        # What all trials have in common explains nothing.
        self._kept = np.flatnonzero((features != features[:1]).any(0))
        self._kept = np.concatenate([[0], self._kept])
        self._features = features[:, self._kept]
        self._group = _groups(rows)[self._kept]
        self._variance = np.ones(self._group.max() + 1)
        self._variance[0] = DOUBT
        latent = np.zeros(len(self._y))
        for number in range(ROUNDS):
            latent = self._condition(latent, AGAIN if number else STEPS)
            self._relevance()
        self._condition(latent, STEPS)
        self._weights, self._half = self._posterior()
        self._covariance = None
        if len(self._kept) <= len(self._y):
            self._covariance = np.diag(self._variance[self._group]) - self._half.T @ self._half

    def chance(self, rows: Rows) -> Floats:
        """The chance of success of every row."""
        features = _features(rows)[:, self._kept]
        mean = HOPE + features @ self._weights
        if self._covariance is not None:
            variance = ((features @ self._covariance) * features).sum(1)
        else:
            own = (features**2) @ self._variance[self._group]
            variance = own - ((features @ self._half.T) ** 2).sum(1)
        return np.asarray(expit(mean / np.sqrt(1 + np.pi * np.maximum(variance, 0.0) / 8)))

    def _condition(self, latent: Floats, steps: int) -> Floats:
        """Laplace's approximation at the present variances, by Newton's method from `latent` on,
        the logits of all trials less m, which it returns at the mode: `_slope` is the
        gradient of the likelihood at the mode, `_root` the root of its curvature, and `_factor` the
        Cholesky factor of I + root K root."""
        kernel = (self._features * self._variance[self._group]) @ self._features.T
        for _ in range(steps):
            p = expit(HOPE + latent)
            self._root = np.sqrt(np.maximum(p * (1 - p), 1e-6))
            inner = self._root[:, None] * kernel * self._root
            inner[np.diag_indices_from(inner)] += 1.0
            self._factor = np.linalg.cholesky(inner)
            target = self._root**2 * latent + self._y - p
            solved = cho_solve((self._factor, True), self._root * (kernel @ target))
            self._slope = target - self._root * solved
            # Bounded steps: a full one may overshoot where the likelihood is flat.
            latent = latent + np.clip(kernel @ self._slope - latent, -FURTHEST, FURTHEST)
        return latent

    def _posterior(self) -> tuple[Floats, Floats]:
        """The means of the weights, and H of their covariance V - H^T H, with V the diagonal of
        their prior variances."""
        own = self._variance[self._group]
        rooted = self._root[:, None] * self._features * own
        half = solve_triangular(self._factor, rooted, lower=True, check_finite=False)
        return own * (self._features.T @ self._slope), half

    def _relevance(self) -> None:
        """The variances that are expected given the posterior of the weights."""
        mean, half = self._posterior()
        own = self._variance[self._group]
        second = mean**2 + np.maximum(own - (half**2).sum(0), 0.0)
        total, count = np.bincount(self._group, second), np.bincount(self._group)
        fitted = (SCALE + 0.5 * total) / (SHAPE + 1 + 0.5 * count)
        self._variance[1:] = fitted[1:]


def _features(rows: Rows) -> Floats:
    """phi of every row, (n, features); the first one is the constant."""
    steps = expit((rows.numeric[:, :, None] - CLIFFS) / SHARPNESS) - 0.5
    parts = [np.ones((len(rows), 1)), rows.levels, steps.reshape(len(rows), -1), rows.trend - 0.5]
    for column, count in zip(rows.category.T, rows.values, strict=True):
        parts.append(np.eye(count + 1)[column])
    return np.concatenate(parts, axis=1).astype(np.float64)


def _groups(rows: Rows) -> np.ndarray:
    """The number of the variance of every feature: levels of a group and values of a category share
    one."""
    width = rows.levels.shape[1] // max(1, rows.groups)
    sizes = [1, *[width] * rows.groups, *[1] * (rows.numeric.shape[1] * len(CLIFFS)), 1, 1]
    sizes += [count + 1 for count in rows.values]
    return np.repeat(np.arange(len(sizes)), sizes)
