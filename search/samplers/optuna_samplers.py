"""Optuna's own samplers, with the settings that suit plans: a plan is many categorical parameters
that matter together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitfront.search.samplers.registry import SAMPLERS, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from bitfront.search.samplers.problem import Problem


@SAMPLERS.register
class Random(Sampler):
    """Every parameter uniformly at random from its domain."""

    name = "random"
    doc = "every parameter uniformly at random"

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=seed)


@SAMPLERS.register
class TPE(Sampler):
    """Multivariate tree-structured Parzen estimator.

    Running trials count as bad ones (`constant_liar`), so that parallel asks do not collide.
    Conditional parameters are modelled in groups that occur together; without any, the search space
    is known and need not be inferred from all trials at every ask."""

    name = "tpe"
    doc = "Optuna's multivariate tree-structured Parzen estimator"

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
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


@SAMPLERS.register
class IndependentTPE(Sampler):
    """Optuna's default for several objectives: a Parzen estimator per parameter. For comparison."""

    name = "tpe-independent"
    doc = "Optuna's default: a Parzen estimator per parameter"

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed, multivariate=False, warn_independent_sampling=False)


@SAMPLERS.register
class NSGA2(Sampler):
    """The genetic algorithm NSGA-II, in generations of 20 trials."""

    name = "nsga2"
    doc = "the genetic algorithm NSGA-II, in generations of 20"

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        from optuna.samplers import NSGAIISampler

        return NSGAIISampler(seed=seed, population_size=20)


@SAMPLERS.register
class GP(Sampler):
    """Optuna's Gaussian process. Optuna draws conditional parameters at random, outside of it."""

    name = "gp"
    doc = "Optuna's Gaussian process; conditional parameters are drawn at random"

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed, deterministic_objective=False)
