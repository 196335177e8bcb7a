"""The plans of one context that satisfy limits on their costs: counted, drawn uniformly, listed.
The cost of a plan is a sum over its groups, so that all three are dynamic programming. Arrays in,
arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitfront.search.samplers.surrogate.model import Floats

# Costs are counted in so many steps, fewer where there are so many numbers to keep, or in whole
# units of theirs where there are no more of these.
STEPS, KEPT = 2**16, 2**22
# Plans that are drawn at a time, and how often, until as many as wanted satisfy all limits.
BATCH, BATCHES = 256, 20
# Costs that differ by less than this share are equal: sums of floats have an order.
CLOSE = 1e-9


@dataclass(frozen=True)
class Band:
    """A cost of plans, base + sum_g deltas[g, level_g], and the range it must be in."""

    base: float
    deltas: Floats
    """(groups, levels)"""
    low: float
    high: float

    def holds(self, total: Floats) -> NDArray[np.bool_]:
        """Whether costs are in the range, but for rounding."""
        slack = CLOSE * (abs(self.base) + float(np.abs(self.deltas).max(1, initial=0).sum()))
        return np.asarray((total >= self.low - slack) & (total <= self.high + slack))


class FeasiblePlans:
    """Plans, (n, groups) of level indices, within all bands. With the costs of levels as whole
    numbers k[g, l] of steps, the number of ways to complete a plan whose first g groups cost s is

        M_G(s) = [low <= s <= high],    M_g(s) = sum_l M_{g+1}(s + k[g, l])

    so that M_0(0) plans are in the band, and a plan is drawn uniformly by taking level l of group g
    with probability M_{g+1}(s + k[g, l]) / M_g(s). This is done for the band that the fewest plans
    satisfy; where its costs have to be rounded to steps, for a band wider by that. What is drawn
    or listed is then compared with all bands exactly."""

    def __init__(self, bands: Sequence[Band]) -> None:
        self._bands = bands
        tables = [_Ways(band) for band in bands]
        self._ways = min(tables, key=lambda t: t.count)
        self.groups = len(bands[0].deltas)

    @property
    def most(self) -> float:
        """There are no more plans than this; so many where there is one band and its costs need no
        rounding."""
        return self._ways.count

    def drawn(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Up to `count` plans, each uniformly from all that satisfy the bands; fewer where almost
        none of those that satisfy one satisfy the others."""
        found: list[NDArray[np.int64]] = []
        left = count
        for _ in range(BATCHES if self.most else 0):
            codes = self._ways.drawn(rng, max(left, BATCH if found or left > 8 else 32))
            found.append(codes[self._hold(codes)][:left])
            left -= len(found[-1])
            if not left:
                break
        return np.concatenate(found) if found else np.zeros((0, self.groups), np.int64)

    def every(self, most: int) -> NDArray[np.int64] | None:
        """All plans that satisfy the bands; None where more than `most` satisfy the narrowest
        one."""
        if self.most > most:
            return None
        codes = self._ways.every()
        return codes[self._hold(codes)]

    def _hold(self, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        fine = np.ones(len(codes), dtype=bool)
        group = np.arange(self.groups)
        for band in self._bands:
            fine &= band.holds(band.base + band.deltas[group, codes].sum(1))
        return fine


class _Ways:
    """M_g(s) for one band. Rows are divided by powers of two, which draws do not notice."""

    def __init__(self, band: Band) -> None:
        least = band.deltas.min(1, keepdims=True) if len(band.deltas) else band.deltas
        above = band.deltas - least
        unit, slack = _unit(above)
        self._steps = np.rint(above / unit).astype(np.int64)
        size = int(self._steps.max(1, initial=0).sum()) + 1
        bottom = band.base + float(least.sum())
        close = CLOSE * (abs(bottom) / unit + size)
        first = np.ceil(max((band.low - bottom) / unit - slack - close, 0.0))
        last = np.floor(min((band.high - bottom) / unit + slack + close, size - 1.0))
        ways = np.zeros(size)
        ways[int(min(first, size)) : int(max(last, -1.0)) + 1] = 1.0
        self._ways, doublings = [ways], 0
        for steps in self._steps[::-1]:
            ahead, ways = ways, np.zeros(size)
            for step in steps:
                ways[: size - step] += ahead[step:]
            top = float(ways.max())
            if top > 2.0**500:
                ways, doublings = ways * 2.0**-500, doublings + 500
            self._ways.append(ways)
        self._ways.reverse()
        self.count = float(ways[0]) * 2.0 ** min(doublings, 500)

    def drawn(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        at = np.zeros(count, np.int64)
        codes = np.zeros((count, len(self._steps)), np.int64)
        for group, steps in enumerate(self._steps):
            weights = self._at(group + 1, at[:, None] + steps[None]).cumsum(1)
            draws = rng.random(count) * weights[:, -1]
            codes[:, group] = (weights <= draws[:, None]).sum(1)
            at += steps[codes[:, group]]
        return codes

    def every(self) -> NDArray[np.int64]:
        """All plans, group by group, without beginnings that no plan completes."""
        at = np.zeros(int(self.count > 0), np.int64)
        codes = np.zeros((len(at), 0), np.int64)
        for group, steps in enumerate(self._steps):
            ahead = at[:, None] + steps[None]
            which, level = np.nonzero(self._at(group + 1, ahead))
            codes = np.concatenate([codes[which], level[:, None]], axis=1)
            at = ahead[which, level]
        return codes

    def _at(self, group: int, at: NDArray[np.int64]) -> Floats:
        ways = self._ways[group]
        return np.where(at < len(ways), ways[np.minimum(at, len(ways) - 1)], 0.0)


def _unit(above: Floats) -> tuple[float, float]:
    """The size of a step, and by how many steps the sum of a plan may be rounded: none where all
    costs are multiples of a number and there are not too many of it."""
    span = float(above.max(1, initial=0.0).sum())
    most = min(STEPS, KEPT // (len(above) + 1))
    if span <= 0:
        return 1.0, 0.0
    whole = np.rint(above * 64)  # counts are multiples of 1/64
    if whole.max() < 2**53 and np.allclose(whole, above * 64, rtol=1e-12, atol=1e-9):
        common = float(np.gcd.reduce(whole.astype(np.int64).ravel())) / 64
        if span / common <= most:
            return common, 0.0
    return span / most, len(above) / 2
