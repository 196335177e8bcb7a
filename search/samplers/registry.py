"""What a sampler is, and all samplers by name. Looking up a name imports neither Optuna nor SciPy:
a declaration imports what it needs when it is asked for a sampler."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar

from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler

    from bitfront.search.samplers.problem import Problem
    from bitfront.search.samplers.surrogate.promising import Promises


class Sampler:
    """The declaration of a way to choose the next point."""

    name: ClassVar[str]
    """what `search.sampler` in a YAML calls it"""
    doc: ClassVar[str]
    """one line for listings"""
    foresees: ClassVar[bool] = False
    """whether it says what the next trials may add to the front"""
    believes: ClassVar[bool] = False
    """whether the priors of a space steer it"""
    adds_layer_costs: ClassVar[bool] = False
    """whether it takes the cost of a plan for the sum of the costs of its layers, which does not
    hold for methods that prune all layers together"""

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        """A sampler of Optuna's kind for one ask."""
        raise NotImplementedError

    @classmethod
    def look_ahead(cls, seed: int, problem: Problem, study: Study) -> None:
        """Leave in the memory of the problem what the model expects of the next trials; a sampler
        without a model expects nothing."""

    @classmethod
    def promises(cls, seed: int, problem: Problem, study: Study) -> Promises | None:
        """The hypervolume that the best new point is expected to add, and that of every paused
        trial by its number; None where there is no model, or not yet."""
        return None


SAMPLERS: Registry[type[Sampler]] = Registry("sampler", package=__package__)


def make_sampler(name: str, seed: int, problem: Problem) -> BaseSampler:
    """The sampler called `name`, freshly seeded for one ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks `multivariate` and `group` experimental
        return SAMPLERS.get(name).make(seed, problem)
