"""Samplers by name, with the settings that suit plans: bits are categorical, drawn together."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from bitfront.search.config.known import COSTS
from bitfront.search.config.schema import Limit
from bitfront.search.front import Objective
from bitfront.spaces.space import Space
from bitfront.trainables.parameters import Choice, Domain, Float, Int
from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass
class Problem:
    """What a sampler may know of a search besides its trials."""

    space: Space
    objectives: Sequence[Objective]
    reference: Sequence[float]
    limits: Mapping[str, Limit]
    is_new: Callable[[dict[str, Any]], bool]
    """whether a point satisfies the limits and no trial has tried it"""
    memory: dict[str, Any] = field(default_factory=dict)
    """what a sampler worked out and the next one may use: functions of space and trials only"""
    cost_names: tuple[str, ...] = COSTS

    @cached_property
    def static(self) -> dict[str, BaseDistribution] | None:
        """The parameters of every trial, when no draw decides which others are drawn."""
        if self.space.is_conditional:
            return None
        found: dict[str, BaseDistribution] = {}

        def draw(name: str, domain: Domain) -> Any:
            found[name] = distribution(domain)
            return middle(domain)

        self.space.walk(draw)
        return found


SAMPLERS: Registry[Callable[[int, Problem], BaseSampler]] = Registry("sampler")


@SAMPLERS.register("free-cost")
def free_cost(seed: int, problem: Problem) -> BaseSampler:
    from bitfront.search.samplers.free_cost import FreeCostSampler

    return FreeCostSampler(problem, seed)


@SAMPLERS.register("random")
def random(seed: int, problem: Problem) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


@SAMPLERS.register("tpe")
def tpe(seed: int, problem: Problem) -> BaseSampler:
    """Multivariate TPE. Running trials count as bad ones, so that parallel asks do not collide.
    Conditional parameters are kept in joint groups; without any, the space is known and need not
    be worked out anew from all trials at every ask."""
    from optuna.samplers import TPESampler

    static = problem.static

    class StaticTPE(TPESampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return dict(static or {})

    kind = TPESampler if static is None else StaticTPE
    return kind(
        seed=seed,
        multivariate=True,
        group=static is None,
        constant_liar=True,
        n_startup_trials=10,
        warn_independent_sampling=False,
    )


@SAMPLERS.register("tpe-independent")
def tpe_independent(seed: int, problem: Problem) -> BaseSampler:
    """Optuna's default for several objectives: each parameter alone. For comparison."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, multivariate=False, warn_independent_sampling=False)


@SAMPLERS.register("nsga2")
def nsga2(seed: int, problem: Problem) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=20)


@SAMPLERS.register("gp")
def gp(seed: int, problem: Problem) -> BaseSampler:
    """Gaussian process; draws at random where parameters are conditional (traps.md)."""
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, deterministic_objective=False)


def make_sampler(name: str, seed: int, problem: Problem) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # multivariate and group are marked experimental
        return SAMPLERS.get(name)(seed, problem)


def distribution(domain: Domain) -> BaseDistribution:
    if isinstance(domain, Float):
        return FloatDistribution(domain.low, domain.high, log=domain.log)
    if isinstance(domain, Int):
        return IntDistribution(domain.low, domain.high, log=domain.log, step=domain.step)
    return CategoricalDistribution(domain.values)


def middle(domain: Domain) -> Any:
    """A plain value of a domain: its first choice, the middle of its range."""
    if isinstance(domain, Choice):
        return domain.values[0]
    ends = (domain.low, domain.high)
    value = math.sqrt(math.prod(ends)) if domain.log else sum(ends) / 2
    if isinstance(domain, Int):
        steps = round((value - domain.low) / domain.step)
        return domain.low + steps * domain.step
    return value
