"""A space as `free-cost` sees it: contexts (all parameters but the plan) with the exact cost of
every level in each, and points as rows of numbers. Nothing is proposed or modelled here."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfront.search.samplers.surrogate.model import Floats, Rows
from bitfront.spaces.space import FreePlan, Space, middle, random_value
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.parameters import Choice, Domain, Int
from bitfront.trainables.plan import LEVELS
from bitfront.trainables.task import TrialSpec

Codes = NDArray[np.int64]

# How much the order of the levels counts in how much alike they are.
ORDERED = 0.5
# Contexts that are remembered besides those of trials; each ask meets some dozens of new ones.
CONTEXTS = 4096


@dataclass(frozen=True)
class Context:
    """All parameters of a point but its plan, with the cost of every level of every group of
    layers. The cost of a plan is the sum over its groups: c(plan) = base + sum_g deltas[g,
    level_g]."""

    key: tuple[Any, ...]
    params: dict[str, Any]
    domains: dict[str, Domain]
    groups: tuple[str, ...]
    levels: tuple[str, ...]
    base: Floats
    """(costs,): the costs of the plan that has the first level everywhere"""
    deltas: Floats
    """(groups, levels, costs): the differences to the first level"""

    def costs(self, codes: Codes) -> Floats:
        """The costs, (plans, costs), of plans given as level indices, (plans, groups)."""
        if not self.groups:
            return np.repeat(self.base[None], len(codes), 0)
        picked = self.deltas[np.arange(len(self.groups))[None], codes]
        return np.asarray(self.base + picked.sum(1))

    @cached_property
    def places(self) -> dict[str, float]:
        """The parameters as numbers: an index of a category, else a place from 0 to 1."""
        return {
            name: domain.values.index(self.params[name])
            if isinstance(domain, Choice) and is_category(domain)
            else place_of(domain, self.params[name])
            for name, domain in self.domains.items()
        }

    @cached_property
    def kind(self) -> tuple[Any, ...]:
        """What plans and parameters it has, and what levels cost: equal where contexts differ in
        values of parameters only."""
        return self.groups, tuple(self.domains), id(self.deltas)

    def point(self, codes: Codes) -> dict[str, Any]:
        """The point with this plan, as the space draws it."""
        plan = {g: self.levels[c] for g, c in zip(self.groups, codes, strict=True)}
        return self.params | plan


@dataclass(frozen=True)
class Known:
    """The point of a trial, with its exact costs."""

    context: Context
    codes: Codes
    costs: Floats


Block = tuple[Context, Codes]
"""Plans, (n, groups), in one context."""


@dataclass(frozen=True)
class Encoder:
    """Turns points into rows of numbers. Which parameters apply may depend on the method and the
    model drawn: there are columns for all parameters of the contexts it was made from."""

    groups: dict[str, int]
    numeric: dict[str, int]
    category: dict[str, int]
    values: tuple[int, ...]
    """how many values each of the categories has"""
    likeness: NDArray[np.float32]
    """(levels, features): `likeness` of the levels"""
    alike: float
    priced: tuple[float, float] | None
    """the least and the greatest logarithm of the cost, where that is a number of the model"""

    @property
    def made_of(self) -> str:
        """What decides the rows of given points."""
        return repr((self.groups, self.numeric, self.category, self.values, self.priced))

    @staticmethod
    def of(
        contexts: Iterable[Context],
        levels: Sequence[str],
        priced: tuple[float, float] | None = None,
    ) -> Encoder:
        groups: set[str] = set()
        domains: dict[str, Domain] = {}
        kinds = {context.kind: context for context in contexts}.values()
        absent = len({context.groups for context in kinds}) > 1
        for context in kinds:
            groups.update(context.groups)
            domains |= context.domains
        named = sorted(domains)
        category = [name for name in named if is_category(domains[name])]
        numeric = [name for name in named if name not in category]
        values = tuple(len(getattr(domains[name], "values", ())) for name in category)
        features = likeness(levels)
        # 1 / (1' S^-1 1): the greatest c for which S - c 1 1' has no negative eigenvalue. Where a
        # group may be absent, that is one more level, alike to itself alone.
        inverse = np.linalg.pinv((features @ features.T).astype(np.float64))
        alike = 1 / float(inverse.sum() + absent)
        columns = _columns(numeric), _columns(category)
        return Encoder(_columns(sorted(groups)), *columns, values, features, alike, priced)

    def rows(self, contexts: Sequence[Context], codes: Codes, trend: Floats, cost: Floats) -> Rows:
        """Rows of plans (n, groups) of these scalar costs, each in a context of its own or all in
        one; the contexts are of one kind. A group or category that does not apply has a value of
        its own, a number the middle of its range."""
        n, width = len(codes), self.likeness.shape[1]
        levels = np.zeros((n, len(self.groups), width + 1), dtype=np.float32)
        absent = np.ones(len(self.groups), dtype=bool)
        there = [i for i, group in enumerate(contexts[0].groups) if group in self.groups]
        columns = np.array([self.groups[contexts[0].groups[i]] for i in there], np.int64)
        absent[columns] = False
        levels[:, columns, :width] = self.likeness[codes[:, there]]
        levels[:, absent, width] = 1.0
        numeric = _settings(self.numeric, contexts, n, 0.5)
        if self.priced is not None:
            low, high = self.priced
            place = np.clip((np.log(cost) - low) / (high - low), -0.5, 1.5)
            numeric = np.concatenate([numeric, place[:, None]], axis=1)
            trend = np.stack([trend[:, 0], place], axis=1)
        return Rows(
            levels=levels.reshape(n, -1),
            trend=trend,
            numeric=numeric,
            category=_settings(self.category, contexts, n, -1),
            believed=np.zeros((n, 0)),
            groups=len(self.groups),
            alike=self.alike,
            values=self.values,
        )


def likeness(levels: Sequence[str]) -> NDArray[np.float32]:
    """A vector of length 1 for each of the levels of a plan. The product of two says how much alike
    they are, with their places l among the L levels in the order F, S, W, B, A:

        S(l, l') = (1 - o) [l = l'] + o (1 - |l - l'| / (L - 1)),   o = ORDERED

    the second part by a vector of signs (a thermometer). Two levels are alike in nothing."""
    count = len(levels)
    if count < 2:
        return np.ones((1, 1), dtype=np.float32)
    place = np.argsort(np.argsort([list(LEVELS).index(letter) for letter in levels]))
    signs = np.where(place[:, None] > np.arange(count - 1)[None], 1.0, -1.0)
    one_hot = np.sqrt(1 - ORDERED) * np.eye(count)
    same = np.full((count, 1), np.sqrt(ORDERED / 2))
    signs *= np.sqrt(ORDERED / (2 * (count - 1)))
    return np.concatenate([one_hot, same, signs], axis=1).astype(np.float32)


def _settings(columns: dict[str, int], contexts: Sequence[Context], n: int, absent: Any) -> Any:
    """(n, columns): the places of the parameters, those that do not apply with value `absent`."""
    found = np.full((len(contexts), len(columns)), absent)
    for name in contexts[0].domains:
        if name in columns:
            found[:, columns[name]] = [context.places[name] for context in contexts]
    return found if len(contexts) == n else np.repeat(found, n, 0)


@dataclass
class Atlas:
    """The contexts of a space that were met so far, with their costs. Kept between asks."""

    space: Space
    costs: Sequence[str]
    _contexts: dict[tuple[Any, ...], Context] = field(default_factory=dict)
    _deltas: dict[tuple[Any, ...], list[tuple[Floats, Floats, Floats]]] = field(
        default_factory=dict
    )
    _prices: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    _trials: dict[int, Known] = field(default_factory=dict)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of a free plan."""
        return self.space.plan.levels if isinstance(self.space.plan, FreePlan) else ()

    def context(self, params: dict[str, Any], rng: random.Random | None = None) -> Context:
        """The context of these parameters. Those that apply and are not given are drawn with `rng`,
        or without it taken from the middle of their domains."""
        chosen: dict[str, Any] = {}
        domains: dict[str, Domain] = {}
        groups: list[str] = []
        free = self.space.plan if isinstance(self.space.plan, FreePlan) else None

        def draw(name: str, domain: Domain) -> Any:
            if free is not None and name.startswith("plan."):
                groups.append(name)
                return free.levels[0]
            value = params.get(name)
            if name not in params or not domain.contains(value):
                value = middle(domain) if rng is None else random_value(domain, rng)
            domains[name], chosen[name] = domain, value
            return value

        key = _key(params)
        if key in self._contexts:
            return self._contexts[key]
        spec = self.space.walk(draw)
        context = self._priced(spec, chosen, domains, tuple(groups))
        while len(self._contexts) >= CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
        return self._contexts.setdefault(context.key, context)

    def _priced(
        self,
        spec: TrialSpec,
        params: dict[str, Any],
        domains: dict[str, Domain],
        groups: tuple[str, ...],
    ) -> Context:
        free = self.space.plan
        if not groups or not isinstance(free, FreePlan):
            base = self._cost(spec)
            return Context(_key(params), params, domains, (), (), base, np.zeros((0, 1, len(base))))
        task, params_of = spec.task, sorted(spec.params.items())
        network = task.dataset, task.model, task.binarize, task.keep_full, task.settled_activations
        # All that a cost depends on besides the plan.
        name = repr((groups, spec.method, params_of, *network))
        if name not in self._prices:
            if len(self._prices) >= CONTEXTS:
                self._prices.clear()
            self._prices[name] = self._price_list(spec, free, groups)
        base, deltas = self._prices[name]
        return Context(_key(params), params, domains, groups, free.levels, base, deltas)

    def _price_list(
        self, spec: TrialSpec, free: FreePlan, groups: tuple[str, ...]
    ) -> tuple[Floats, Floats]:
        """`base` and `deltas` of the context of a spec."""
        table = task_cost_table(spec.task)

        def priced(codes: Sequence[int]) -> Floats:
            letters = {g: free.levels[c] for g, c in zip(groups, codes, strict=True)}
            plan = free.make(table, lambda name, _domain: letters[name], spec.seed)
            return self._cost(spec.model_copy(update={"plan": plan}))

        zeros = [0] * len(groups)
        base, other = priced(zeros), priced([len(free.levels) - 1] * len(groups))
        # Most parameters do not change the cost: where two opposite plans cost what they cost in
        # another context, all plans do.
        kind = (spec.method, groups)
        for known_base, known_other, deltas in self._deltas.get(kind, []):
            if np.array_equal(known_base, base) and np.array_equal(known_other, other):
                return base, deltas
        deltas = np.zeros((len(groups), len(free.levels), len(base)))
        for g in range(len(groups)):
            for level in range(1, len(free.levels)):
                codes = zeros.copy()
                codes[g] = level
                deltas[g, level] = priced(codes) - base
        self._deltas.setdefault(kind, []).append((base, other, deltas))
        return base, deltas

    def _cost(self, spec: TrialSpec) -> Floats:
        totals = self.space.costs(spec)
        return np.array([totals[name] for name in self.costs])

    def known(self, trial: Any) -> Known:
        """The point of a trial."""
        if trial.number not in self._trials:
            self._trials[trial.number] = self.at(trial.params)
        return self._trials[trial.number]

    def at(self, params: Mapping[str, Any]) -> Known:
        """The point of all these parameters."""
        free = isinstance(self.space.plan, FreePlan)
        rest = {k: v for k, v in params.items() if not (free and k.startswith("plan."))}
        context = self.context(rest)
        codes = np.array([context.levels.index(params[g]) for g in context.groups], np.int64)
        return Known(context, codes, context.costs(codes[None])[0])


def mapped(context: Context, codes: Codes, other: Context, rng: np.random.Generator) -> Codes:
    """The plan in another context: groups of the same name keep their level, others are drawn."""
    if context.groups == other.groups:
        return codes
    known = dict(zip(context.groups, codes, strict=True))
    levels = max(1, len(other.levels))
    return np.array([known.get(g, rng.integers(levels)) for g in other.groups], np.int64)


def nearby(domain: Domain, value: Any, rng: random.Random) -> Any:
    """A random value near this one; of a category any value."""
    if isinstance(domain, Choice):
        if is_category(domain):
            return rng.choice(domain.values)
        ranked = sorted(domain.values)
        index = ranked.index(value) + rng.choice((-1, 1))
        return ranked[min(max(index, 0), len(ranked) - 1)]
    place = min(max(place_of(domain, value) + rng.gauss(0, 0.15), 0.0), 1.0)
    low, high = float(domain.low), float(domain.high)
    if domain.log:
        moved = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
    else:
        moved = low + place * (high - low)
    moved = min(max(moved, low), high)
    if isinstance(domain, Int):
        steps = round((moved - domain.low) / domain.step)
        return min(domain.low + steps * domain.step, domain.high)
    return moved


def _columns(names: Iterable[str]) -> dict[str, int]:
    return {name: column for column, name in enumerate(names)}


def _key(params: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(params.items()))


def is_category(domain: Domain) -> bool:
    """Whether values have no order. Three or more numbers have one."""
    if not isinstance(domain, Choice):
        return False
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in domain.values)
    return not numbers or len(domain.values) < 3


def place_of(domain: Domain, value: Any) -> float:
    """A value's place in its domain, from 0 to 1."""
    if isinstance(domain, Choice):
        return sorted(domain.values).index(value) / max(1, len(domain.values) - 1)
    low, high = float(domain.low), float(domain.high)
    if domain.log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (float(value) - low) / (high - low) if high > low else 0.5
