"""Proximal mean-field and mirror descent: the weight is a tanh or softmax of the latent, whose
sharpness beta grows during training (docs/methods.md 2.7, 3.5)."""

from __future__ import annotations

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
from bitfront.trainables.parameters import Choice, Float, Param

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bitfront.trainables.layers.latents import Latent


class Sharpened(OwnOptimizer):
    """Methods whose soft weights approach signs as the sharpness beta grows."""

    soft_weights = True

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._beta = declared_schedule(self.values, "beta")

    def before_step(self, fraction: float) -> None:
        self.shared.value = self._beta.at(fraction)


@METHODS.register
class PMFMethod(Sharpened):
    name = "pmf"
    paper = "pmf"
    doc = (
        "p = softmax(beta u) over the levels -1 and +1, the mean weight in training, beta annealed"
    )
    params: ClassVar = {
        "lr": rate(1e-3),
        **rate_schedule(),
        **scheduled(
            "beta",
            Param(1.0, Float(1e-3, 1e4), "sharpness at first"),
            Param(1e4, Float(1.0, 1e6), "at last", search=Float(10.0, 1e4, log=True)),
            shape="exponential",
        ),
        "jacobian": Param(
            "exact",
            Choice(("exact", "released")),
            "of the softmax: diag(p) - p p', or I - p p' as in the authors' code, whose "
            "gradients do not vanish at the corners",
        ),
        "weight_decay": Param(0.0, Float(0.0, 1.0), "on u", search=Choice((0.0, 1e-4))),
        **_begins_real(0.0),
    }

    def make_latent(self, weight: Tensor) -> Latent:
        return layers.MeanFieldWeight(self.shared, weight, str(self.values["jacobian"]))

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        others: list[Any] = [layer.quantizer.shift for layer in self.layers]
        shifts = [shift for shift in others if shift is not None]
        lr, decay = float(self.values["lr"]), float(self.values["weight_decay"])
        return Adam([*latents, *shifts], lr, weight_decay=decay, fused=True)


@METHODS.register
class BMDMethod(Sharpened):
    name = "bmd"
    paper = "bmd"
    doc = "w = tanh(beta a), the gradient at w given to a unchanged, beta annealed (MD-tanh)"
    params: ClassVar = {
        "lr": rate(1e-2),
        **rate_schedule(),
        **scheduled(
            "beta",
            Param(1.0, Float(1e-3, 1e35), "sharpness at first"),
            Param(2e4, Float(1.0, 1e35), "at last", search=Float(1e3, 1e6, log=True)),
            shape="exponential",
        ),
        "form": Param(
            "adam",
            Choice(("adam", "exact")),
            "adam on a, or the multiplicative step of mirror descent on w itself",
        ),
        **_begins_real(0.0),
    }

    @property
    def exact(self) -> bool:
        return self.values["form"] == "exact"

    def make_latent(self, weight: Tensor) -> Latent:
        return layers.CubeWeight(self.shared) if self.exact else layers.MirroredWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        lr = float(self.values["lr"])
        if self.exact:
            return optimizers.MirrorDescent(latents, lr)
        return Adam(latents, lr, fused=True)

    def before_step(self, fraction: float) -> None:
        super().before_step(fraction)
        if self.exact:
            self.set_group("beta", self.shared.value)
