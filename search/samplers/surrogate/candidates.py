"""Candidates of one ask: points that may be worth training, before the model has ranked them.
All of them satisfy the limits."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from bitfront.search.samplers.surrogate.atlas import (
    Atlas,
    Block,
    Codes,
    Context,
    Known,
    mapped,
    nearby,
)
from bitfront.search.samplers.surrogate.fronts import additive_front
from bitfront.search.samplers.surrogate.model import Floats, Rows
from bitfront.search.samplers.surrogate.objectives import Objectives
from bitfront.search.samplers.surrogate.within import Within
from bitfront.spaces.space import FreePlan, SelectedPlan, Space, ends
from bitfront.trainables.methods import METHODS

CANDIDATES = 1000
# Changes of two or three layers among the neighbours of a plan.
DOUBLES = 16
# How many changed settings are looked at where nothing else differs; and half as many random ones.
SETTINGS = 96
# Combinations of the least and greatest model parameters that are looked at for the ends.
CORNERS = 64

Expected = Callable[[Context, Codes], Floats]
"""The qualities that the model expects of plans, (n, groups), in one context."""


class Candidates:
    """Makes candidates; every random number comes from the two generators of the ask."""

    def __init__(
        self,
        space: Space,
        atlas: Atlas,
        objectives: Objectives,
        within: Within,
        rng: np.random.Generator,
        draws: random.Random,
    ) -> None:
        self._space = space
        self._atlas = atlas
        self._objectives = objectives
        self._within = within
        self._limited = bool(within.limits)
        self._rng = rng
        self._random = draws

    def _repaired(self, context: Context, codes: Codes) -> Codes:
        return self._objectives.repaired(context, codes, self._rng)

    def end(self, dear: bool) -> list[tuple[Context, Codes]]:
        """Points at one end of the cost axis, the best first: the dearest or cheapest level in
        every layer of the dearest or cheapest model, all other parameters in the middle. Where a
        limit forbids that, the nearest plan it allows. Without a plan, settings that decide the
        cost are at their ends too."""
        space = self._space
        planned = [str(m) for m in space.method.values if METHODS.get(str(m)).levels != "F"]
        if not planned:
            return []  # every method of the space is full precision
        weights = self._objectives.scalar.cost
        found: list[tuple[float, Context, Codes]] = []
        for drawn in self._corners(planned[0]):
            context = self._atlas.context(drawn)
            price = context.deltas @ weights
            plans = self._repaired(context, (price.argmax(1) if dear else price.argmin(1))[None])
            if not len(plans):
                plans = self._drawn_within(context, 16)
            for plan in plans:
                cost = float(context.costs(plan[None])[0] @ weights)
                found.append((-cost if dear else cost, context, plan))
        ordered = sorted(found, key=lambda f: f[0])
        if not isinstance(space.plan, FreePlan) and ordered and ordered[0][0] == ordered[-1][0]:
            return []  # no end: every point costs the same
        return [(context, plan) for _, context, plan in ordered]

    def _corners(self, method: str) -> list[dict[str, Any]]:
        """The settings that may decide the cost at their ends, in all combinations."""
        space = self._space
        models = {k: ends(d) for k, d in space.overrides.items() if k.startswith("model.")}
        if not isinstance(space.plan, FreePlan):
            domains = {f"{method}.{k}": d for k, d in space.method_params.get(method, {}).items()}
            if isinstance(space.plan, SelectedPlan):
                domains["plan.budget"] = space.plan.budget
            models |= {k: ends(d) for k, d in domains.items() if d.size > 1}
        corners = itertools.islice(itertools.product(*models.values()), CORNERS)
        return [dict(zip(models, corner, strict=True)) | {"method": method} for corner in corners]

    def _drawn_within(self, context: Context, count: int) -> Codes:
        """Plans drawn uniformly from those that satisfy the limits; none without a plan."""
        within = self._within.plans(context)
        if within is None:
            return np.zeros((0, len(context.groups)), np.int64)
        return within.drawn(self._rng, count)

    def scattered(self, count: int) -> Iterator[tuple[Context, Codes]]:
        """Random points. The share of each level is drawn first, so that cheap and dear plans are
        as likely as those in between."""
        for _ in range(count):
            context = self._atlas.context({}, self._random)
            plans = self._repaired(context, self._random_plans(context, 1))
            for codes in plans if len(plans) else self._drawn_within(context, 1):
                yield context, codes

    def _random_plans(self, context: Context, count: int) -> Codes:
        """Plans whose shares of levels are uniformly distributed."""
        levels = max(1, len(context.levels))
        shares = self._rng.dirichlet(np.ones(levels), count).cumsum(1)
        draws = self._rng.random((count, len(context.groups)))
        plans: Codes = np.minimum((draws[:, :, None] > shares[:, None, :]).sum(2), levels - 1)
        return plans

    def pool(self, expected: Expected, front: list[Known]) -> list[Block]:
        """The candidates of an ask before local search: per context random plans, the plans of the
        front, changes and crossings of them, and the front of the model's additive part."""
        contexts = self._contexts(front)
        share = max(40, CANDIDATES // len(contexts))
        blocks = []
        for context in contexts:
            made = [self._random_plans(context, max(4, share // 8))]
            if not context.groups:
                blocks.append((context, self._repaired(context, made[0][:1])))
                continue
            plans = np.stack([mapped(k.context, k.codes, context, self._rng) for k in front])
            additive = self._additive(expected, context, plans)
            made.append(plans)
            made.append(self._changed(plans, len(context.levels), share // 2))
            made.append(self._crossed(plans, share // 8))
            codes = np.unique(np.concatenate(made), axis=0)
            room = max(share - len(additive), share // 4)
            if len(codes) > room:
                codes = codes[self._rng.choice(len(codes), room, replace=False)]
            codes = self._repaired(context, np.unique(np.concatenate([additive, codes]), axis=0))
            if self._limited:
                codes = np.concatenate([codes, self._drawn_within(context, share // 8)])
            blocks.append((context, codes))
        return blocks

    def _contexts(self, front: list[Known]) -> list[Context]:
        """The contexts to look for plans in: those of the front, changes of them, and random
        ones."""
        on_front = list({known.context.key: known.context for known in front}.values())
        if not on_front[0].domains and len(on_front) == 1:
            return on_front
        # Where the plan is fixed, candidates differ in nothing but their context.
        wanted = 4 if isinstance(self._space.plan, FreePlan) else SETTINGS
        if len(on_front) > wanted:
            chosen = self._rng.choice(len(on_front), wanted, replace=False)
            on_front = [on_front[i] for i in sorted(chosen)]
        changed = [self._resettled(self._random.choice(on_front)) for _ in range(wanted)]
        drawn = [self._atlas.context({}, self._random) for _ in range(wanted // 2)]
        return list({c.key: c for c in on_front + changed + drawn}.values())

    def _resettled(self, context: Context) -> Context:
        """The context with one or two parameters changed: numbers a little, categories to any
        value."""
        params = dict(context.params)
        for name in self._random.sample(
            list(params), min(len(params), self._random.choice((1, 2)))
        ):
            params[name] = nearby(context.domains[name], params[name], self._random)
        return self._atlas.context(params, self._random)

    def _additive(self, expected: Expected, context: Context, plans: Codes) -> Codes:
        """The exact fronts of the additive model around a few plans of the front: the gain of a
        level in a group is the expected change of quality when only that group changes."""
        groups, levels = len(context.groups), len(context.levels)
        price = context.deltas @ self._objectives.scalar.cost
        found = []
        for index in self._rng.choice(len(plans), min(2, len(plans)), replace=False):
            around = np.repeat(plans[index][None], groups * levels, 0)
            around[np.arange(groups * levels), np.repeat(np.arange(groups), levels)] = np.tile(
                np.arange(levels), groups
            )
            gain = expected(context, around).reshape(groups, levels)
            found.append(additive_front(gain - gain[:, :1], price))
        return np.concatenate(found)

    def _changed(self, plans: Codes, levels: int, count: int) -> Codes:
        """Plans with one to three layers at another level."""
        chosen = plans[self._rng.integers(len(plans), size=count)]
        for changes in range(3):
            rows = np.arange(changes * count // 3, count)
            group = self._rng.integers(plans.shape[1], size=len(rows))
            step = self._rng.integers(1, max(2, levels), size=len(rows))
            chosen[rows, group] = (chosen[rows, group] + step) % levels
        return chosen

    def _crossed(self, plans: Codes, count: int) -> Codes:
        """Plans that take every group from one of two plans at random."""
        a, b = (plans[self._rng.integers(len(plans), size=count)] for _ in range(2))
        return np.where(self._rng.random(a.shape) < 0.5, a, b)

    def neighbours(self, points: list[tuple[Context, Codes]]) -> list[Block]:
        """Every change of a plan in one group, some in more, and the plan in changed contexts."""
        blocks: list[Block] = []
        for context, codes in points:
            groups, levels = len(context.groups), len(context.levels)
            if groups:
                singles = np.repeat(codes[None], groups * (levels - 1), 0)
                group = np.repeat(np.arange(groups), levels - 1)
                step = np.tile(np.arange(1, levels), groups)
                rows = np.arange(len(singles))
                singles[rows, group] = (singles[rows, group] + step) % levels
                doubles = self._changed(singles, levels, DOUBLES)
                made = np.concatenate([singles, doubles])
                blocks.append((context, self._repaired(context, made)))
            for _ in range(3 if context.domains else 0):
                other = self._resettled(context)
                moved = mapped(context, codes, other, self._rng)[None]
                blocks.append((other, self._repaired(other, moved)))
        return blocks


def fresh(blocks: Iterable[Block], taken: set[Any]) -> list[Block]:
    """The candidates that are not in `taken`; they are added to it."""
    found = []
    for context, codes in blocks:
        new = []
        for i, row in enumerate(codes):
            key = (context.key, row.tobytes())
            if key not in taken:
                taken.add(key)
                new.append(i)
        if new:
            found.append((context, codes[new]))
    return found


def separation(rows: Rows, others: Rows) -> Floats:
    """The distance of every row to the nearest of others, by settings and places on the cost
    axis."""
    left, right = (np.concatenate([r.numeric, r.trend], axis=1) for r in (rows, others))
    apart = ((left[:, None] - right[None]) ** 2).sum(2)
    apart += (rows.category[:, None] != others.category[None]).sum(2)
    return np.asarray(np.sqrt(apart).min(1))
