"""What is believed of the quality before any trial: by the user, who names the values that ought to
be best, by another search, whose model of its own trials is one belief, and by selectors. Each is a
function of a point that the model (`model.py`) gives a weight; trials decide how much of it stays.
Points in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from bitfront.search.samplers.problem import Elsewhere
from bitfront.search.samplers.surrogate.atlas import (
    Atlas,
    Codes,
    Context,
    Known,
    is_category,
    place_of,
)
from bitfront.search.samplers.surrogate.model import Floats, QualityModel, Rows
from bitfront.spaces.space import FreePlan, Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.parameters import Domain, Prior
from bitfront.trainables.plan import BINARY_STEPS

# The deviation of the best place in a range from the one that was named, and how many times
# likelier the named value of a choice is than another one.
WIDTH = {"low": 0.5, "medium": 0.25, "high": 0.125}
ODDS = {"low": 2.0, "medium": 4.0, "high": 8.0}
# Fewer trials of another search say nothing.
LEAST = 5
# Standard deviations of the quality that a unit of the logarithm of that density is taken for.
WORTH = 0.5
# Of the cost, where nothing is saved.
TINY = 1e-12


class OtherSearch:
    """The trials of another search, which trained another task, as one belief,

        b(x) = (mu(x) - m) / s

    with the expectation mu of a model of those trials (`model.py`), their mean m and deviation s:
    what is good there is expected to be good here, as far as the weight says, by which the tasks
    are related. (In a model of both tasks, such as that of Bonilla, Chai and Williams, 2007, all
    trials of both would be at every ask.) No belief where the model is no better than the mean."""

    def __init__(self, atlas: Atlas, trials: Sequence[Elsewhere], measured: Sequence[str]) -> None:
        self._atlas, self._measured = atlas, measured
        self._trials = [t for t in trials if all(name in t["metrics"] for name in measured)]
        self._made_of = ""
        self._model: QualityModel | None = None

    @cached_property
    def points(self) -> list[Known]:
        """The trials as points of this space."""
        return [self._atlas.at(trial["point"]) for trial in self._trials]

    def learn(self, made_of: str, rows: Callable[[], Rows], weights: Floats) -> None:
        """Fit the model to the trials as rows; once for all that rows are `made_of`."""
        if made_of == self._made_of or len(self.points) < LEAST:
            return
        self._made_of, self._model = made_of, None
        values = np.array([[t["metrics"][n] for n in self._measured] for t in self._trials])
        quality = values @ weights
        self._shift, self._scale = float(quality.mean()), float(quality.std())
        if self._scale:
            noise, rng = np.zeros(len(quality)), np.random.default_rng(0)
            model = QualityModel(rows().unbelieved, quality, noise, rng)
            self._model = None if model.health().blind else model

    def of(self, rows: Rows) -> Floats:
        """b of every row, (n, 1); (n, 0) where there is no belief."""
        if self._model is None:
            return np.zeros((len(rows), 0))
        expected = self._model.expected(rows.unbelieved)
        return ((expected - self._shift) / self._scale)[:, None]


class SelectorAdvice:
    """The orders in which selectors make the layers of a network binary, each as a belief: with r
    the place of a layer among G in such an order, c the cost that making it binary saves and d the
    share of the way from F to B that its level is,

        b(x) = -sqrt(12) sum_g h_g d_g / sum_g h_g,   h_g = c_g exp(z((r_g + 1/2) / G))

    with z the quantile of the normal distribution: selectors rank layers by damage for what is
    saved, which is taken to differ by a factor of e (log-normal)."""

    def __init__(self, space: Space) -> None:
        advice = space.advice
        orders = [] if advice is None else advice.orders(task_cost_table(space.task), 0)
        self._damage = [
            np.exp(ndtri((np.argsort(order) + 0.5) / len(order))) for order in map(list, orders)
        ]

    def of(self, context: Context, codes: Codes) -> Floats:
        """b of plans in one context or in contexts of its kind, (plans, selectors)."""
        found = np.zeros((len(codes), len(self._damage)))
        way = [min(BINARY_STEPS[letter] / BINARY_STEPS["B"], 1.0) for letter in context.levels]
        price = context.deltas[:, :, :1].sum(2)
        for column, damage in enumerate(self._damage):
            if len(damage) == len(context.groups):
                harm = damage * (price.max(1) - price.min(1) + TINY)
                found[:, column] = -math.sqrt(12) * np.array(way)[codes] @ harm / harm.sum()
        return found


class Beliefs:
    """The priors of a space. That a density pi of the best point steers a search is the idea of
    piBO (Hvarfner et al., 2022, arXiv:2204.11051), where it is a factor pi^(beta/n) of the gain.
    Here each parameter with a prior is a belief of its own,

        b(x) = WORTH log(pi(x) / max pi)

    with pi normal around a number, on its scale, and ODDS to one for a category or a level."""

    def __init__(self, space: Space, contexts: Iterable[Context], other: OtherSearch) -> None:
        """The beliefs that apply in these contexts."""
        self._other, self._advice = other, SelectorAdvice(space)
        domains: dict[str, Domain] = {}
        groups: set[str] = set()
        for context in {c.kind: c for c in contexts}.values():
            domains |= {n: d for n, d in context.domains.items() if d.prior is not None}
            groups |= set(context.groups)
        free = space.plan if isinstance(space.plan, FreePlan) else None
        parts = {} if free is None else free.priors
        self._settings = sorted(domains.items())
        self._parts: list[tuple[str, Prior]] = sorted(
            (f"plan.{part}", prior) for part, prior in parts.items() if f"plan.{part}" in groups
        )

    def of(self, contexts: Sequence[Context], codes: Codes, rows: Rows) -> Floats:
        """(plans, beliefs), of plans each in a context of its own or all in one, and the same as
        rows."""
        n, first = len(codes), contexts[0]
        found = np.zeros((n, len(self._settings) + len(self._parts)))
        for column, (name, domain) in enumerate(self._settings):
            if name in first.domains:
                found[:, column] = [_setting(context, name, domain) for context in contexts]
        for column, (group, prior) in enumerate(self._parts, len(self._settings)):
            if group in first.groups:
                other = codes[:, first.groups.index(group)] != first.levels.index(str(prior.value))
                found[:, column] = -WORTH * math.log(ODDS[prior.confidence]) * other
        return np.concatenate([found, self._other.of(rows), self._advice.of(first, codes)], axis=1)


def _setting(context: Context, name: str, domain: Domain) -> float:
    """b of one parameter."""
    prior = domain.prior
    assert prior is not None
    if is_category(domain):
        other = context.params[name] != prior.value
        return -WORTH * math.log(ODDS[prior.confidence]) if other else 0.0
    apart = context.places[name] - place_of(domain, prior.value)
    return float(-0.5 * WORTH * (apart / WIDTH[prior.confidence]) ** 2)
