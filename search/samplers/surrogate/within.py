"""The points of a space whose costs satisfy the limits, where a plan is drawn level by level: its
costs add up, so that they can be counted, drawn and listed. For `free-cost`, and for every sampler
that proposes nothing new."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfront.search.samplers.surrogate.atlas import Atlas, Codes, Context
from bitfront.search.samplers.surrogate.feasible import Band, FeasiblePlans
from bitfront.spaces.listing import every_point
from bitfront.spaces.space import FixedPlan, FreePlan

if TYPE_CHECKING:
    from bitfront.search.config.sections.bounds import Limit

# The settings of a space are listed where there are no more, and its plans where these are.
CONTEXTS = 200
PLANS = 50_000
# How many prices of plans are remembered with what they allow.
REMEMBERED = 8


class Within:
    """The plans within the limits, context by context."""

    def __init__(self, atlas: Atlas, limits: Mapping[str, Limit]) -> None:
        self._atlas = atlas
        self.limits = limits
        self._known: dict[bytes, FeasiblePlans] = {}

    def plans(self, context: Context) -> FeasiblePlans | None:
        """The plans of a context within the limits; None where it has no free plan."""
        if not context.groups:
            return None
        key = context.base.tobytes() + context.deltas.tobytes()
        if key not in self._known:
            while len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = FeasiblePlans(self._bands(context))
        return self._known[key]

    def _bands(self, context: Context) -> list[Band]:
        bands = []
        for name, limit in self.limits.items():
            column = list(self._atlas.costs).index(name)
            low = -np.inf if limit.min is None else limit.min
            high = np.inf if limit.max is None else limit.max
            bands.append(Band(float(context.base[column]), context.deltas[:, :, column], low, high))
        free = np.zeros(context.deltas.shape[:2])
        return bands or [Band(0.0, free, -np.inf, np.inf)]

    @cached_property
    def adds_up(self) -> bool:
        """Whether a plan is drawn level by level, and the cost of every plan is the sum of what its
        levels cost: not where a method keeps in one layer what it prunes in another."""
        space = self._atlas.space
        if not isinstance(space.plan, FreePlan):
            return False
        for method in map(str, space.method.values):
            context = self._atlas.context({"method": method})
            draws = np.random.default_rng(0).random((3, len(context.groups)))
            plans = (draws * len(context.levels)).astype(np.int64)
            for codes, total in zip(plans, context.costs(plans), strict=True):
                point = context.point(codes)
                costs = space.costs(space.walk(lambda name, _domain, p=point: p[name]))  # type: ignore[misc]
                if not np.allclose([costs[n] for n in self._atlas.costs], total):
                    return False
        return True

    def drawn(self, rng: random.Random, count: int) -> Iterator[tuple[Context, Codes]]:
        """Random points within the limits: settings at random, then a plan uniformly from those
        that satisfy the limits with them."""
        plans_rng = np.random.default_rng(rng.randrange(2**31))
        for _ in range(count):
            context = self._atlas.context({}, rng)
            within = self.plans(context)
            if within is None:
                yield context, np.zeros(0, np.int64)
                continue
            for codes in within.drawn(plans_rng, 1):
                yield context, codes

    def every(self) -> list[tuple[Context, Codes]] | None:
        """All points within the limits; None where they cannot be listed."""
        space = self._atlas.space
        assert isinstance(space.plan, FreePlan)
        alone = replace(space, plan=FixedPlan(space.plan.levels[0]))
        settings = every_point(alone, CONTEXTS)
        if settings is None:
            return None
        found: list[tuple[Context, Codes]] = []
        for drawn, _ in settings:
            context = self._atlas.context(drawn)
            within = self.plans(context)
            codes: Any = np.zeros((1, 0), np.int64)
            if within is not None:
                codes = within.every(PLANS - len(found))
            if codes is None:
                return None
            found += [(context, row) for row in codes]
        return found
