"""How sure a front is: trials of one point with several seeds put together, the probability that
a point belongs to the front, and where another seed would tell most."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from bitfront.search.config.known import COSTS
from bitfront.search.front import Objective
from bitfront.search.ledger.entry import Entry
from bitfront.trainables.tasks import Metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What another seed is taken to change before any point has two: half a point of accuracy, as sure
# of it as of three measurements.
PRIOR_SPREAD = 0.005
PRIOR_WEIGHT = 3
DRAWS = 400
# A point has at most so many seeds, however close the race.
MOST_SEEDS = 6


def by_point(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Complete trials that differ in nothing but their seed, together."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.state == "complete" and entry.values is not None:
            found.setdefault(entry.point, []).append(entry)
    return found


def seed_spread(points: Iterable[Sequence[Entry]], axis: int) -> float:
    """Standard deviation over seeds, pooled over all points."""
    squares, freedom = PRIOR_WEIGHT * PRIOR_SPREAD**2, PRIOR_WEIGHT
    for trials in points:
        values = [t.values[axis] for t in trials if t.values is not None]
        if len(values) > 1:
            squares += statistics.variance(values) * (len(values) - 1)
            freedom += len(values) - 1
    return math.sqrt(squares / freedom)


def merged(entries: Iterable[Entry], objectives: Sequence[Objective]) -> list[Entry]:
    """One entry a point: its first trial, with means over the seeds and how sure they are."""
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
    """The objective that is measured, and so uncertain: the first that is no cost."""
    return next(i for i, o in enumerate(objectives) if o.name not in COSTS)


def probabilities(points: Sequence[Entry], objectives: Sequence[Objective]) -> list[float]:
    """For each merged point, the probability that no other dominates it: quality is normal
    around the mean with the error of so many seeds, costs are exact. By simulation, seeded."""
    import numpy as np

    if not points:
        return []
    axis = quality_axis(objectives)
    signs = np.array([-1.0 if o.maximize else 1.0 for o in objectives])
    losses = np.array([p.values for p in points], dtype=float) * signs
    error = np.array([(p.spread or PRIOR_SPREAD) / math.sqrt(p.seeds) for p in points])
    rest = np.delete(losses, axis, axis=1)
    mean = losses[:, axis]
    # Only points that noise could carry past their best rival are worth simulating.
    close = np.flatnonzero(mean - 4 * (error + error.max()) <= _best_covering(mean[None], rest)[0])
    draws = np.random.default_rng(0).normal(size=(DRAWS, len(close)))
    drawn = mean[close] + error[close] * draws
    best = drawn <= _best_covering(drawn, rest[close])
    found = np.zeros(len(points))
    found[close] = best.mean(0)
    return [float(f) for f in found]


def _best_covering(values: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """In each row of `values` (draws, points), the least one among the point itself and all that
    cost no more than it in anything. `costs` is (points, kinds of cost)."""
    import numpy as np

    if costs.shape[1] == 1:
        # Along the cost it is a running minimum, up to the last point of the same cost.
        order = np.argsort(costs[:, 0], kind="stable")
        ends = np.searchsorted(costs[order, 0], costs[:, 0], side="right") - 1
        return np.minimum.accumulate(values[:, order], axis=1)[:, ends]
    covers = (costs[None, :, :] <= costs[:, None, :]).all(2)
    return np.stack([np.where(covers, row[None, :], np.inf).min(1) for row in values])


def cautious(entry: Entry, quality: Metric) -> float:
    """Quality less the error of its mean: of two points as good, the one with more seeds."""
    error = (entry.spread or 0.0) / math.sqrt(entry.seeds)
    return entry.metrics[quality.name] + (-error if quality.maximize else error)


def next_repeat(
    entries: Iterable[Entry], objectives: Sequence[Objective], running: dict[str, int]
) -> Entry | None:
    """The trial whose point is trained once more with another seed: where it is least clear
    whether it belongs to the front, fewer seeds first. `running` counts repeats not yet ended."""
    points = merged(entries, objectives)
    chances = probabilities(points, objectives)
    best: tuple[float, int] | None = None
    for i, (point, chance) in enumerate(zip(points, chances, strict=True)):
        seeds = point.seeds + running.get(point.point, 0)
        if seeds >= MOST_SEEDS:
            continue
        # A point that is surely on the front is still worth a second look.
        doubt = (chance * (1 - chance) + 0.05 * chance) / seeds**2
        if best is None or doubt > best[0]:
            best = (doubt, i)
    return points[best[1]] if best is not None else None
