"""BayesBiNN and the baselines of its paper: STE with Adam, and Bop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers, optimizers
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.own_optimizer import (
    OwnOptimizer,
    _begins_real,
    rate,
    rate_schedule,
)
from bitfront.trainables.methods.quantizer_pair import declared_schedule, scheduled
from bitfront.trainables.parameters import Choice, Float, Int, Param

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bitfront.trainables.layers.binary import BinaryLayer
    from bitfront.trainables.layers.latents import Latent


@METHODS.register
class BayesBiNNMethod(OwnOptimizer):
    name = "bayesbinn"
    paper = "bayesbinn"
    doc = (
        "Bernoulli weights of natural parameter lam, trained by natural gradients through relaxed "
        "samples tanh((lam + noise) / tau); evaluated at the mode, sign(lam)"
    )
    soft_weights = True
    params: ClassVar = {
        "lr": rate(1e-4),
        **rate_schedule(),
        "tau": Param(
            1e-10,
            Float(1e-12, 100.0),
            "temperature of the relaxed samples",
            search=Float(1e-12, 1e-3, log=True),
        ),
        "momentum": Param(0.0, Float(0.0, 0.999), "of the update of lam"),
        "samples": Param(1, Int(1, 100), "Monte-Carlo samples per step"),
        "lam_init": Param(
            10.0, Float(0.0, 100.0), "|lam| at first", search=Choice((1.0, 5.0, 10.0, 15.0))
        ),
        "kl": Param(1.0, Float(0.0, 100.0), "weight of the pull to the prior"),
        "prior": Param(
            "previous",
            Choice(("previous", "none")),
            "of every task after the first one: the posterior of the task before, or lam = 0",
        ),
        "mean_samples": Param(
            0,
            Int(0, 10_000),
            "draws of the weights whose mean prediction is measured beside the mode's at the end",
        ),
        "mean_every": Param(
            0,
            Int(0, 1_000_000),
            "after how many epochs that mean is measured; 0: only at the end",
            later=True,
        ),
        "average": Param(
            "probabilities", Choice(("probabilities", "logits")), "what the mean is taken of"
        ),
        **_begins_real(0.0),
    }

    @property
    def draws(self) -> int:
        return 1 if self.shared.real else int(self.values["samples"])

    def make_latent(self, weight: Tensor) -> Latent:
        self.shared.value = float(self.values["tau"])
        return layers.SampledWeight(self.shared, weight, float(self.values["lam_init"]))

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        v = self.values
        priors: list[Any] = [layer.quantizer.prior for layer in self.layers]
        return optimizers.BayesBiNN(
            latents, float(v["lr"]), self.examples, float(v["momentum"]), float(v["kl"]), priors
        )

    def next_task(self, layer: BinaryLayer) -> None:
        if self.values["prior"] == "previous":
            prior: Any = layer.quantizer.prior
            prior.copy_(layer.latent.detach())

    def predictions(
        self, model: nn.Module, combine: Callable[[Tensor, str], Tensor], seed: int
    ) -> layers.Averaged | None:
        samples = int(self.values["mean_samples"])
        if not samples or not self.layers or self.shared.real:
            return None
        return layers.Averaged(
            model, self.shared, samples, combine, str(self.values["average"]), seed
        )


@METHODS.register
class STEAdamMethod(OwnOptimizer):
    name = "ste-adam"
    paper = "binaryconnect"
    doc = "F = sign, B = 1, Adam on latents clipped to [-1, 1] after each step, as in BayesBiNN"
    params: ClassVar = {
        "lr": rate(1e-2),
        **rate_schedule(),
        "scale": Param(
            "none",
            Choice(("none", "channel")),
            "of binary weights: 1, or mean |w| of each output channel, as in ReActNet",
            later=True,
        ),
        **_begins_real(0.0),
    }

    def make_latent(self, weight: Tensor) -> Latent:
        scaled = self.values["scale"] == "channel"
        return layers.ScaledSign(self.shared) if scaled else layers.SignedWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        return optimizers.ClippedAdam(latents, float(self.values["lr"]))


@METHODS.register
class BopMethod(OwnOptimizer):
    name = "bop"
    paper = "bop"
    doc = "weights are +-1 and flip where a moving average of their gradient says so clearly"
    params: ClassVar = {
        **scheduled(
            "gamma",
            Param(
                1e-4,
                Float(0.0, 1.0),
                "rate of the moving average at first",
                search=Float(1e-6, 1e-2, log=True),
            ),
            Param(1e-7, Float(0.0, 1.0), "at last; 0 needs a linear or cosine path"),
            shape="exponential",
        ),
        "theta": Param(
            1e-8,
            Float(0.0, 1.0),
            "how strong the average must be for a flip",
            search=Float(1e-9, 1e-5, log=True),
        ),
        "form": Param(
            "flip", Choice(("flip", "hysteresis")), "how the rule is written; the result is one"
        ),
        **_begins_real(0.0),
    }

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._gamma = declared_schedule(self.values, "gamma")

    def make_latent(self, weight: Tensor) -> Latent:
        return layers.FlippedWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        v = self.values
        return optimizers.Bop(latents, self._gamma.at(0.0), float(v["theta"]), str(v["form"]))

    def before_step(self, fraction: float) -> None:
        self.set_group("gamma", self._gamma.at(fraction))
