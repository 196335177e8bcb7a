"""Repeats of a point with other seeds: means over them, the probability that a point belongs to the
front, and the point for which another seed matters most."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from bitfront.search.config.known import is_cost
from bitfront.search.front import Objective
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.trainables.metrics import Metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Prior of the standard deviation over seeds, before any point has two: half a percentage point of
# accuracy, with the weight of three degrees of freedom.
PRIOR_SPREAD = 0.005
PRIOR_WEIGHT = 3
DRAWS = 400
# The most seeds of a point.
MOST_SEEDS = 6


def by_point(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Complete trials by point: those of a point differ in nothing but their seed."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.state == TrialState.COMPLETE and entry.values is not None:
            found.setdefault(entry.point, []).append(entry)
    return found


def seed_spread(points: Iterable[Sequence[Entry]], axis: int) -> float:
    """The standard deviation over seeds, pooled over all points and the prior:

        s^2 = (w0 s0^2 + sum_p (n_p - 1) s_p^2) / (w0 + sum_p (n_p - 1))

    with s_p^2 the sample variance of the n_p seeds of point p."""
    squares, freedom = PRIOR_WEIGHT * PRIOR_SPREAD**2, PRIOR_WEIGHT
    for trials in points:
        values = [t.values[axis] for t in trials if t.values is not None]
        if len(values) > 1:
            squares += statistics.variance(values) * (len(values) - 1)
            freedom += len(values) - 1
    return math.sqrt(squares / freedom)


def merged(entries: Iterable[Entry], objectives: Sequence[Objective]) -> list[Entry]:
    """An entry per point: its first trial, with means over the seeds and their spread."""
    points = by_point(entries)
    axis = quality_axis(objectives)
    spread = seed_spread(points.values(), axis)
    found = []
    for trials in points.values():
        first = copy(min(trials, key=lambda t: t.number))
        if len(trials) > 1:
            names = set.intersection(*(set(t.metrics) for t in trials))
            means = {n: statistics.fmean(t.metrics[n] for t in trials) for n in sorted(names)}
            columns = zip(*(t.values for t in trials if t.values is not None), strict=True)
            first.metrics, first.values = means, [statistics.fmean(column) for column in columns]
            first.own_spread = statistics.stdev(t.values[axis] for t in trials if t.values)
        first.seeds, first.spread = len(trials), spread
        found.append(first)
    return found


def quality_axis(objectives: Sequence[Objective]) -> int:
    """The index of the first objective that is measured; the costs are exact."""
    return next(i for i, o in enumerate(objectives) if not is_cost(o.name))


def probabilities(points: Sequence[Entry], objectives: Sequence[Objective]) -> list[float]:
    """For each merged point, the probability that no other dominates it. Qualities are drawn from
    normal distributions with the standard error s / sqrt(seeds); costs are exact. Seeded."""
    import numpy as np

    if not points:
        return []
    axis = quality_axis(objectives)
    signs = np.array([-1.0 if o.maximize else 1.0 for o in objectives])
    losses = np.array([p.values for p in points], dtype=float) * signs
    error = np.array([(p.spread or PRIOR_SPREAD) / math.sqrt(p.seeds) for p in points])
    rest = np.delete(losses, axis, axis=1)
    mean = losses[:, axis]
    # Points that are worse than their best rival by more than four errors are not simulated.
    close = np.flatnonzero(mean - 4 * (error + error.max()) <= _best_covering(mean[None], rest)[0])
    draws = np.random.default_rng(0).normal(size=(DRAWS, len(close)))
    drawn = mean[close] + error[close] * draws
    best = drawn <= _best_covering(drawn, rest[close])
    found = np.zeros(len(points))
    found[close] = best.mean(0)
    return [float(f) for f in found]


def _best_covering(values: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each draw and point of `values` (draws, points), the least value among all points that
    cost no more in any kind of cost, the point itself included. `costs` is (points, kinds)."""
    import numpy as np

    if costs.shape[1] == 1:
        # With one kind of cost this is a running minimum, up to the last point of the same cost.
        order = np.argsort(costs[:, 0], kind="stable")
        ends = np.searchsorted(costs[order, 0], costs[:, 0], side="right") - 1
        return np.minimum.accumulate(values[:, order], axis=1)[:, ends]
    covers = (costs[None, :, :] <= costs[:, None, :]).all(2)
    return np.stack([np.where(covers, row[None, :], np.inf).min(1) for row in values])


def cautious(entry: Entry, quality: Metric) -> float:
    """The quality, made worse by the standard error of its mean: of two equally good points the one
    with more seeds ranks first."""
    error = (entry.spread or 0.0) / math.sqrt(entry.seeds)
    return entry.metrics[quality.name] + (-error if quality.maximize else error)


def next_repeat(
    entries: Iterable[Entry], objectives: Sequence[Objective], running: dict[str, int]
) -> Entry | None:
    """The trial whose point gets another seed: the one with the greatest

        doubt = (p (1 - p) + 0.05 p) / n^2

    where p is the probability that the point is on the front and n the number of its seeds, those
    in `running` (open trials per point) included. None where all points have MOST_SEEDS."""
    points = merged(entries, objectives)
    chances = probabilities(points, objectives)
    best: tuple[float, int] | None = None
    for i, (point, chance) in enumerate(zip(points, chances, strict=True)):
        seeds = point.seeds + running.get(point.point, 0)
        if seeds >= MOST_SEEDS:
            continue
        # The second term: a point that is surely on the front still gets a second seed.
        doubt = (chance * (1 - chance) + 0.05 * chance) / seeds**2
        if best is None or doubt > best[0]:
            best = (doubt, i)
    return points[best[1]] if best is not None else None
