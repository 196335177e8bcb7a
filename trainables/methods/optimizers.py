"""LR-net (docs/methods.md 2.8) and BNEW (docs/methods.md 3), which have an optimizer of their own
for the binary weights. Layers in full precision keep the task's optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers, optimizers
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.own_optimizer import (
    OwnOptimizer,
    _begins_real,
    rate,
    rate_schedule,
    share_of,
)
from bitfront.trainables.parameters import Choice, Float, Param
from bitfront.trainables.training.schedules.phases import Phase
from bitfront.trainables.training.schedules.values import Schedule

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bitfront.trainables.layers.binary import BinaryLayer
    from bitfront.trainables.layers.latents import Latent


@METHODS.register
class LRNetMethod(OwnOptimizer):
    name = "lr-net"
    paper = "lr-net"
    doc = (
        "weights +1 with probability sigmoid(theta); training draws a layer's outputs from the "
        "normal distribution they give, evaluation takes sign(theta)"
    )
    soft_weights = True
    params: ClassVar = {
        "lr": rate(1e-2),
        **rate_schedule(),
        "certainty": Param(
            1e-6,
            Float(0.0, 1.0),
            "weight in the loss of log p (1 - p), which is least where weights are certain",
            search=Float(1e-8, 1e-4, log=True),
        ),
        **_begins_real(0.0),
    }

    def make_latent(self, weight: Tensor) -> Latent:
        return layers.StochasticWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        return Adam(latents, float(self.values["lr"]), fused=True)

    def bind(self, made: Sequence[BinaryLayer]) -> None:
        super().bind(made)
        for layer in self.layers:
            layers.reparametrize_locally(layer.module, layer.quantizer)  # type: ignore[arg-type]

    def penalty(self) -> Tensor | None:
        weight = float(self.values["certainty"])
        if not weight or self.shared.real or not self.layers:
            return None
        from torch.nn.functional import logsigmoid

        terms = [(logsigmoid(x) + logsigmoid(-x)).sum() for x in (y.latent for y in self.layers)]
        return weight * sum(terms[1:], terms[0])


@METHODS.register
class BNEWMethod(OwnOptimizer):
    name = "bnew"
    paper = "bnew"
    doc = (
        "real weights in [-1, 1] that a growing regulariser drives to the corners, without latents "
        "beside them; then signs, frozen while everything else is trained on"
    )
    params: ClassVar = {
        "lr": Param(
            1e-2,
            Float(1e-9, 100.0),
            "learning rate of the binary weights, on the task's schedule",
            search=Choice((3e-3, 1e-2, 3e-2)),
        ),
        "r": Param(
            1e-4,
            Float(0.0, 1.0),
            "weight of the regulariser at last, 0 at first; with few steps it wants to be larger",
            search=Float(1e-5, 1e-2, log=True),
        ),
        "regulariser": Param(
            "concave",
            Choice(("concave", "l1", "l2")),
            "-|w|^2, or the distance |w - sign w| or its square",
        ),
        "step": Param(
            "first-order",
            Choice(("first-order", "exact")),
            "of the concave regulariser, from u: (1 + 2 r) u, or u / (1 - 2 r), which it is the "
            "first order of",
            later=True,
        ),
        "direction": Param(
            "adam",
            Choice(("adam", "gradient")),
            "of the step to u: Adam's, as in the experiments, or the gradient's, as in Theorem 1",
            later=True,
        ),
        "r_path": Param(
            "linear",
            Choice(("linear", "constant")),
            "of the regulariser's weight: from 0 to r, or r throughout, as in Theorem 1",
            later=True,
        ),
        "freeze_share": Param(
            0.1,
            Float(0.0, 0.95),
            "share of the epochs of quantisation, at their end, with frozen signs",
            search=Choice((0.02, 0.1)),
        ),
        **_begins_real(0.5),
    }

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        r = float(self.values["r"])
        self._r = Schedule(r if self.values["r_path"] == "constant" else 0.0, r)
        self._frozen = False

    @property
    def soft(self) -> bool:
        return not self._frozen or self.soft_inputs

    def make_latent(self, weight: Tensor) -> Latent:
        return layers.CubeWeight(self.shared)

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        regulariser: Any = self.values["regulariser"]
        exact = self.values["step"] == "exact"
        lr = float(self.values["lr"])
        step = optimizers.BNEW if self.values["direction"] == "adam" else optimizers.BNEWDescent
        return step(latents, lr, regulariser=regulariser, exact=exact)

    def binary_phases(self, epochs: int, best: bool) -> Sequence[Phase]:
        frozen = share_of(float(self.values["freeze_share"]), epochs)
        free = Phase("quantise", epochs - frozen, best=best)
        return [free, Phase("freeze", frozen, continues=True)] if frozen else [free]

    def enter(self, phase: Phase) -> None:
        """Freeze the signs, or start the phase. A frozen weight has no gradient, so that the
        moments of Adam do not move it."""
        self._frozen = phase.continues
        for layer in self.layers:
            layer.latent.requires_grad_(not self._frozen)
            if self._frozen:
                layer.latent.grad = None
                layer.latent.data.copy_(layer.hard_parts()[0])
        if not self._frozen:
            super().enter(phase)

    def before_step(self, fraction: float) -> None:
        self.set_group("r", self._r.at(fraction))
