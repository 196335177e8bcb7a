"""The problem a sampler is given: space, objectives and limits of a search. Its trials are in the
Optuna study that the sampler is asked with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

from bitfront.search.front import Objective
from bitfront.spaces.space import Space, middle
from bitfront.trainables.parameters import Domain, Float, Int

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from bitfront.search.config.sections.bounds import Limit


class Elsewhere(TypedDict):
    """A finished trial of another search."""

    point: dict[str, Any]
    """what it would be in this space"""
    metrics: dict[str, float]


@dataclass
class Problem:
    """What a sampler may know of a search besides its trials."""

    space: Space
    objectives: Sequence[Objective]
    reference: Sequence[float]
    """the point from which the hypervolume is measured, in the order of the objectives"""
    limits: Mapping[str, Limit]
    """by the name of a cost"""
    cost_names: Sequence[str]
    """the objectives and limits of these names are costs, known before training"""
    is_new: Callable[[dict[str, Any]], bool]
    """whether a point satisfies the limits and no trial has tried it"""
    elsewhere: Sequence[Elsewhere] = ()
    """trials of another search, where this one was begun from it"""
    measured_limits: Mapping[str, Limit] = field(default_factory=dict)
    """by the name of a metric: what no trial can promise"""
    memory: dict[str, Any] = field(default_factory=dict)
    """results that one ask leaves to the next; they depend on the space and the trials only"""

    @cached_property
    def static(self) -> dict[str, BaseDistribution] | None:
        """The parameters that every trial has; None where a drawn value decides which others are
        drawn."""
        if self.space.is_conditional:
            return None
        found: dict[str, BaseDistribution] = {}

        def draw(name: str, domain: Domain) -> Any:
            found[name] = distribution(domain)
            return middle(domain)

        self.space.walk(draw)
        return found


def distribution(domain: Domain) -> BaseDistribution:
    """The domain as Optuna describes it."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(domain, Float):
        return FloatDistribution(domain.low, domain.high, log=domain.log)
    if isinstance(domain, Int):
        return IntDistribution(domain.low, domain.high, log=domain.log, step=domain.step)
    return CategoricalDistribution(domain.values)
