"""The declaration of the default sampler, which models the quality of a point and takes its cost as
known. What it computes is in `surrogate/`, from `ask.py` on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.search.samplers.registry import SAMPLERS, Sampler

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler

    from bitfront.search.samplers.problem import Problem
    from bitfront.search.samplers.surrogate.promising import Promises


@SAMPLERS.register
class FreeCost(Sampler):
    """Expected gain in hypervolume of a Gaussian process over the quality, at the exact cost."""

    name = "free-cost"
    doc = "models the quality only, the cost is exact: greatest expected gain in hypervolume"
    adds_layer_costs = True
    foresees = True
    believes = True

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        from bitfront.search.samplers.surrogate.ask import FreeCostSampler  # SciPy

        return FreeCostSampler(problem, seed)

    @classmethod
    def look_ahead(cls, seed: int, problem: Problem, study: Study) -> None:
        from bitfront.search.samplers.surrogate.ask import FreeCostSampler  # SciPy

        FreeCostSampler(problem, seed).look_ahead(study)

    @classmethod
    def promises(cls, seed: int, problem: Problem, study: Study) -> Promises | None:
        from bitfront.search.samplers.surrogate.ask import FreeCostSampler  # SciPy

        return FreeCostSampler(problem, seed).promises(study)
