"""Bi-Real, R-BNN, IR-Net's EDE and ReActNet, and the forms of them that fit ProxConnect++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.quantizer_pair import (
    PCPP,
    SCALE,
    QuantizerPair,
    clamp,
    scheduled,
)
from bitfront.trainables.parameters import Choice, Float, Param
from bitfront.trainables.training.schedules.values import Schedule

if TYPE_CHECKING:
    from torch import Tensor, nn


@METHODS.register
class BiReal(QuantizerPair):
    name = "bi-real"
    paper = "bi-real"
    doc = "F = sign, B = max(0, 2 - 2 |w|), or for weights as in the authors' code"
    params: ClassVar = {
        "scale": SCALE,
        "weight_grad": Param(
            "triangle",
            Choice(("triangle", "released")),
            "of a latent, for the gradient g of its scaled sign: s max(0, 2 - 2 |w|) g as for "
            "inputs, or 1[|w| <= 1] g as in the authors' code",
            later=True,
        ),
        "clamp": clamp(False),
    }

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        if self.values["weight_grad"] == "triangle":
            return super().weight_quantizer(layer)
        weight: Any = layer.weight
        clipped = layers.Annealed(layers.PAIRS["bnn"], 1.0)
        return layers.UnscaledGradient(clipped, self.scale, weight)


def _sharpness(start: float) -> dict[str, Param]:
    return scheduled(
        "t",
        Param(start, Float(1e-4, 100.0), "sharpness at first", search=Choice((1e-3, 1e-2, 1e-1))),
        Param(10.0, Float(1e-4, 1000.0), "sharpness at last", search=Choice((5.0, 10.0, 20.0))),
        shape="exponential",
    )


class Sharpening(QuantizerPair):
    """Pairs with the sharpness t = T_min (T_max / T_min)^f at the fraction f of training (e/E in
    the papers) and the gain k = max(1/t, 1) (docs/methods.md 1.6, 1.7)."""

    def _make_schedule(self) -> Schedule:
        return self._declared_schedule("t")


@METHODS.register
class RotatedBNN(Sharpening):
    name = "r-bnn"
    paper = "r-bnn"
    doc = "F = sign, B = k max(0, sqrt(2) t - t^2 |w|), t annealed; the rotation is an option"
    # Inputs are quantized with k = 1 (docs/methods.md 1.6).
    input_floor = 1.0
    params: ClassVar = {
        **_sharpness(1e-2),
        "rotate": Param(
            False,
            Choice((True, False)),
            "standardize the latents and rotate them towards the corners, anew each epoch",
        ),
        "scale": SCALE,
        "clamp": clamp(False),
    }

    def before_sign(self, weight: Tensor) -> nn.Module | None:
        return layers.Rotated(weight) if self.values["rotate"] else None

    def before_epoch(self) -> None:
        if self.values["rotate"]:
            for layer in self.layers:
                layer.quantizer.before.estimate(layer.latent.detach())  # type: ignore[union-attr, operator]
        super().before_epoch()


@METHODS.register
class PolyPlus(Sharpening):
    name = "poly+"
    doc = "F = the primitive of R-BNN's slope, B = that slope, t annealed; evaluated with the sign"
    input_floor = 1.0
    params: ClassVar = {**_sharpness(1e-2), "scale": SCALE, "clamp": clamp(False)}


class ErrorDecay(Sharpening):
    """The error decay estimator of IR-Net, g(w) = k tanh(t w) (docs/methods.md 1.7)."""

    paper = "ir-net"
    params: ClassVar = {
        **_sharpness(1e-1),
        "standardize": Param(
            False, Choice((True, False)), "latents to mean 0 and deviation 1 in each channel first"
        ),
        "scale": SCALE,
        "clamp": clamp(False),
    }

    def before_sign(self, weight: Tensor) -> nn.Module | None:
        return layers.Standardized() if self.values["standardize"] else None


@METHODS.register
class EDE(ErrorDecay):
    name = "ede"
    doc = "F = sign, B = k t (1 - tanh^2(t w)), t annealed (IR-Net's error decay estimator)"


@METHODS.register
class EDEPlus(ErrorDecay):
    name = "ede+"
    paper = PCPP
    doc = "F = k tanh(t w), B = its slope, t annealed; evaluated with the sign"


@METHODS.register
class ReAct(QuantizerPair):
    name = "react"
    paper = "reactnet"
    doc = "F = sign(w - a), B = max(0, 2 - 2 |w - a|), a shift a learned for every channel"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(False)}

    @property
    def shifts_inputs(self) -> bool:
        return True
