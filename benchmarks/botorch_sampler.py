"""BoTorch's qNEHVI as Optuna's integration asks it: Gaussian processes of all objectives, costs
among them, over the parameters as numbers. For `benchmarks.search --samplers qnehvi`."""

from __future__ import annotations

from optuna.samplers import BaseSampler

from bitfront.search.samplers.problem import Problem
from bitfront.search.samplers.registry import SAMPLERS, Sampler


@SAMPLERS.register
class QNEHVI(Sampler):
    """Noisy expected hypervolume improvement (Daulton, Balandat and Bakshy, 2021,
    arXiv:2105.08195)."""

    name = "qnehvi"
    doc = "BoTorch's noisy expected hypervolume improvement"

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        from optuna_integration.botorch import BoTorchSampler, qnehvi_candidates_func

        made: BaseSampler = BoTorchSampler(
            candidates_func=qnehvi_candidates_func,
            n_startup_trials=10,
            seed=seed,
            consider_running_trials=True,
        )
        return made
