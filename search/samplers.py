"""Samplers by name, with the settings that suit plans: bits are categorical, drawn together."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainables.registry import Registry

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

SAMPLERS: Registry[Callable[[int], BaseSampler]] = Registry("sampler")


@SAMPLERS.register("random")
def random(seed: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


@SAMPLERS.register("tpe")
def tpe(seed: int) -> BaseSampler:
    """Multivariate TPE; `group` keeps conditional parameters in joint groups, and running trials
    count as bad ones, so that parallel asks do not collide."""
    from optuna.samplers import TPESampler

    return TPESampler(
        seed=seed,
        multivariate=True,
        group=True,
        constant_liar=True,
        n_startup_trials=10,
        warn_independent_sampling=False,
    )


@SAMPLERS.register("tpe-independent")
def tpe_independent(seed: int) -> BaseSampler:
    """Optuna's default for several objectives: each parameter alone. For comparison."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, multivariate=False, warn_independent_sampling=False)


@SAMPLERS.register("nsga2")
def nsga2(seed: int) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=20)


@SAMPLERS.register("gp")
def gp(seed: int) -> BaseSampler:
    """Gaussian process; draws at random where parameters are conditional (traps.md)."""
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, deterministic_objective=False)


def make_sampler(name: str, seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # multivariate and group are marked experimental
        return SAMPLERS.get(name)(seed)
