"""What the next trials may add to a front: the model of `free-cost` drawn at the candidates of an
ask. Arrays in, arrays out; what people see of it is in `search.deciding.outlook`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitfront.search.deciding.outlook import AHEAD, Outlook, Try
from bitfront.search.samplers.surrogate.atlas import Known
from bitfront.search.samplers.surrogate.fronts import Staircase
from bitfront.search.samplers.surrogate.model import Floats
from bitfront.search.samplers.surrogate.objectives import Objectives

# Draws from the model, and how many of the best candidates are drawn at.
DRAWS, CANDIDATES = 32, 64
# The factors of the deviation of a draw for the expected gain and for its range, and the quantiles
# that are its ends. The first is that of an ask (`ask.OWN_SPREAD`); the others were chosen on nine
# problems so that the gain is as often below the range as above (benchmarks/README.md).
EXPECTED_SPREAD, RANGE_SPREAD = 0.4, 0.7
LOW, HIGH = 0.05, 0.9
# So many of the most promising points are told.
TRIES = 3


@dataclass(frozen=True)
class Ahead:
    """Points whose trials may come next, those that run first."""

    cost: Floats
    mean: Floats
    """the quality that is expected of each"""
    drawn: Floats
    """(draws, points): the quality that each is measured to have"""
    chance: Floats
    """that a trial succeeds and keeps the limits on what is measured"""
    running: int


def outlook(
    stairs: Staircase, ahead: Ahead, ended: int, rng: np.random.Generator
) -> Outlook | None:
    """The gain that is expected of the next trials, as a share of the hypervolume under `stairs`,
    the front as measured; None where there is none yet."""
    volume = _volume(stairs)
    if volume <= 0 or not len(ahead.cost):
        return None
    lost = rng.random(ahead.drawn.shape) >= ahead.chance
    gains = []
    for spread in (EXPECTED_SPREAD, RANGE_SPREAD):
        drawn = ahead.mean + spread * (ahead.drawn - ahead.mean)
        drawn[lost] = -np.inf
        gains.append(simulated_gains(stairs, ahead.cost, drawn, ahead.running) / volume)
    low, high = np.quantile(gains[1], [LOW, HIGH])
    expected = float(np.clip(gains[0].mean(), low, high))
    trials = min(AHEAD, len(ahead.cost))
    gain, least, most = (round(float(x), 7) for x in (expected, low, high))
    return Outlook(ended, trials, gain, least, most)


def with_tries(
    found: Outlook, points: Sequence[Known], mean: Floats, objectives: Objectives
) -> Outlook:
    """The outlook with the first of these points, the best of them first, as what would be tried;
    `mean` is the quality that is expected of each."""
    sign = float(objectives.scalar.quality[0])
    tries = []
    for known, quality in zip(points[:TRIES], mean, strict=False):
        context = known.context
        params = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in context.params.items()
        }
        plan = "".join(context.levels[code] for code in known.codes)
        costs = zip(objectives.names, map(float, known.costs), strict=True)
        tries.append(Try(params, plan, sign * float(quality), dict(costs)))
    return replace(found, tries=tuple(tries))


def simulated_gains(stairs: Staircase, cost: Floats, drawn: Floats, running: int) -> Floats:
    """The hypervolume that the next trials add to the front, once for every draw (draws, points).
    The points that run are taken first, then, one after another, the one that adds most on
    average: a search does not know the draw either."""
    fronts = [stairs] * len(drawn)
    left = np.ones(len(cost), bool)
    total = np.zeros(len(drawn))
    for number in range(min(AHEAD, len(cost))):
        pairs = list(zip(fronts, drawn, strict=True))
        if number < running:
            chosen = number
        else:
            mean = np.mean([_added(front, cost, draw) for front, draw in pairs], axis=0)
            chosen = int(np.where(left, mean, -1.0).argmax())
        left[chosen] = False
        one = slice(chosen, chosen + 1)
        total += [_added(front, cost[one], draw[one])[0] for front, draw in pairs]
        fronts = [_with(front, float(cost[chosen]), float(draw[chosen])) for front, draw in pairs]
    return total


def _volume(stairs: Staircase) -> float:
    """The hypervolume under a staircase."""
    ends = np.append(stairs.cost[1:], stairs.reference_cost)
    high = stairs.quality - stairs.reference_quality
    return float(((ends - stairs.cost) * high).sum()) if len(stairs.cost) else 0.0


def _added(stairs: Staircase, cost: Floats, quality: Floats) -> Floats:
    """The hypervolume that each of the points alone would add: over each step beyond its cost, the
    width of the step times the excess over its height."""
    begins = np.concatenate([[-np.inf], stairs.cost])
    ends = np.append(stairs.cost, stairs.reference_cost)
    heights = np.concatenate([[stairs.reference_quality], stairs.quality])
    widths = np.clip(ends[None] - np.maximum(begins[None], cost[:, None]), 0.0, None)
    return np.asarray((widths * np.maximum(quality[:, None] - heights[None], 0.0)).sum(1))


def _with(stairs: Staircase, cost: float, quality: float) -> Staircase:
    """The staircase with one more point."""
    at = int(np.searchsorted(stairs.cost, cost, side="right"))
    below = stairs.quality[at - 1] if at else stairs.reference_quality
    if quality <= below or cost >= stairs.reference_cost:
        return stairs
    kept = (stairs.cost < cost) | (stairs.quality > quality)
    before = int(kept[:at].sum())
    return Staircase(
        np.insert(stairs.cost[kept], before, cost),
        np.insert(stairs.quality[kept], before, quality),
        stairs.reference_cost,
        stairs.reference_quality,
    )
