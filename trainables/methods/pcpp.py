"""The ProxConnect++ family: a latent weight, a forward quantizer F and a backward quantizer B,
w* <- w* - eta B(w*) g(F(w*)) (methods.md 1.1, 1.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from trainables.methods.base import METHODS, Method
from trainables.parameters import Choice, Float, Param
from trainables.schedules import Schedule

if TYPE_CHECKING:
    from torch import nn

    from trainables.binary import Annealed
    from trainables.quantizers import Pair

PCPP = (
    "Lu et al., Understanding Neural Network Binarization with Forward and Backward Proximal "
    "Quantizers, NeurIPS 2023"
)

SCALE = Param(
    "none",
    Choice(("none", "layer", "channel")),
    "mean |w| as scale of the binary weights: none, one a layer, one an output channel",
)


def clamp(default: bool) -> Param:
    return Param(default, Choice((True, False)), "clip latents to [-1, 1] after each step")


@METHODS.register("fp")
class FullPrecision(Method):
    name = "fp"
    family = "full precision"
    paper = PCPP
    doc = "F(w) = w, B(w) = 1: the upper bound; every layer stays in full precision"
    levels = "F"


class QuantizerPair(Method):
    """Latents through one (F, B) pair, inputs of B layers through the same one."""

    family = "pcpp"
    paper = PCPP
    levels = "FWB"

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._schedule = self._make_schedule()
        self._annealed: Annealed | None = None

    def _make_schedule(self) -> Schedule:
        return Schedule(1.0, 1.0, "constant")

    @property
    def annealed(self) -> Annealed:
        """The one annealed value that weights and activations share (methods.md 1.9)."""
        if self._annealed is None:
            from trainables.binary import Annealed

            self._annealed = Annealed(self.pair(), self._schedule.at(0.0))
        return self._annealed

    def pair(self) -> Pair:
        """F and B; by default those `quantizers.PAIRS` has under the method's name."""
        from trainables.quantizers import PAIRS

        return PAIRS[self.name]

    @property
    def soft(self) -> bool:
        return self.annealed.pair.soft

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        self.annealed.as_trained = True
        try:
            yield
        finally:
            self.annealed.as_trained = False

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        from trainables.binary import WeightQuantizer

        return WeightQuantizer(self.annealed, self.scale)

    def input_quantizer(self, layer: nn.Module) -> nn.Module:
        from trainables.binary import InputQuantizer

        return InputQuantizer(self.annealed)

    def before_step(self, fraction: float) -> None:
        self.annealed.value = self._schedule.at(fraction)

    def after_step(self) -> None:
        if self.values["clamp"]:
            from trainables.binary import clamp_latents

            clamp_latents(self.layers)


@METHODS.register("bc")
class BinaryConnect(QuantizerPair):
    name = "bc"
    doc = "F = sign, B = 1 (BinaryConnect)"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(True)}


@METHODS.register("bnn")
class BNN(QuantizerPair):
    name = "bnn"
    doc = "F = sign, B = 1[|w| <= 1]"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(True)}


@METHODS.register("bnn+")
class BNNPlus(QuantizerPair):
    name = "bnn+"
    doc = "F = sign, B = SS'_mu, the slope of the sign-Swish, mu fixed"
    params: ClassVar = {
        "mu": Param(5.0, Float(0.1, 1000.0), "sharpness", search=Float(2.0, 10.0, log=True)),
        "scale": SCALE,
        "clamp": clamp(False),
    }

    def _make_schedule(self) -> Schedule:
        return Schedule(float(self.values["mu"]), float(self.values["mu"]), "constant")


@METHODS.register("bnn++")
class BNNPlusPlus(QuantizerPair):
    name = "bnn++"
    doc = "F = SS_mu, B = SS'_mu, mu annealed; evaluated with the sign"
    params: ClassVar = {
        "mu_start": Param(5.0, Float(0.1, 1000.0), "mu at first", search=Choice((2.0, 5.0, 10.0))),
        "mu_end": Param(
            30.0, Float(0.1, 10000.0), "mu at last", search=Float(10.0, 100.0, log=True)
        ),
        "mu_until": Param(1.0, Float(0.01, 1.0), "fraction of training at which mu_end is reached"),
        "mu_shape": Param("linear", Choice(("linear", "cosine", "exponential")), "of mu's path"),
        "scale": SCALE,
        "clamp": clamp(False),
    }

    def _make_schedule(self) -> Schedule:
        v = self.values
        return Schedule(
            float(v["mu_start"]),
            float(v["mu_end"]),
            str(v["mu_shape"]),
            until=float(v["mu_until"]),
        )
