"""Samplers by name, with the settings that suit plans: bits are categorical, drawn together."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainables.registry import Registry

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

# What a sampler is told beforehand: the parameters that every trial has, where all have the same.
Static = dict[str, "BaseDistribution"] | None

SAMPLERS: Registry[Callable[[int, Static], BaseSampler]] = Registry("sampler")


@SAMPLERS.register("random")
def random(seed: int, static: Static) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


@SAMPLERS.register("tpe")
def tpe(seed: int, static: Static) -> BaseSampler:
    """Multivariate TPE. Running trials count as bad ones, so that parallel asks do not collide.
    Conditional parameters are kept in joint groups; without any, the space is known and need not
    be worked out anew from all trials at every ask."""
    from optuna.samplers import TPESampler

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
def tpe_independent(seed: int, static: Static) -> BaseSampler:
    """Optuna's default for several objectives: each parameter alone. For comparison."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, multivariate=False, warn_independent_sampling=False)


@SAMPLERS.register("nsga2")
def nsga2(seed: int, static: Static) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=20)


@SAMPLERS.register("gp")
def gp(seed: int, static: Static) -> BaseSampler:
    """Gaussian process; draws at random where parameters are conditional (traps.md)."""
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, deterministic_objective=False)


def make_sampler(name: str, seed: int, static: Static = None) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # multivariate and group are marked experimental
        return SAMPLERS.get(name)(seed, static)
