"""The ProxConnect++ family: a latent weight w*, a forward quantizer F and a backward quantizer B,
w* <- w* - eta B(w*) g(F(w*)) (Lu et al., NeurIPS 2023; docs/methods.md 1.1, 1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.methods.base import METHODS, Method
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
    from bitfront.trainables.layers.quantizers import Pair


@METHODS.register
class FullPrecision(Method):
    name = "fp"
    family = "full precision"
    paper = PCPP
    doc = "F(w) = w, B(w) = 1: the upper bound; every layer stays in full precision"
    levels = "F"


@METHODS.register
class BinaryConnect(QuantizerPair):
    name = "bc"
    paper = "binaryconnect"
    doc = "F = sign, B = 1 (BinaryConnect)"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(True)}


@METHODS.register
class BNN(QuantizerPair):
    name = "bnn"
    paper = "bnn"
    doc = "F = sign, B = 1[|w| <= 1]"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(True)}


@METHODS.register
class BNNPlus(QuantizerPair):
    name = "bnn+"
    paper = "bnn-plus"
    doc = "F = sign, B = SS'_mu, the slope of the sign-Swish, mu fixed"
    params: ClassVar = {
        "mu": Param(5.0, Float(0.1, 1000.0), "sharpness", search=Float(2.0, 10.0, log=True)),
        "scale": SCALE,
        "clamp": clamp(False),
    }

    def _make_schedule(self) -> Schedule:
        return Schedule(float(self.values["mu"]), float(self.values["mu"]), "constant")


@METHODS.register
class BNNPlusPlus(QuantizerPair):
    name = "bnn++"
    doc = "F = SS_mu, B = SS'_mu, mu annealed; evaluated with the sign"
    params: ClassVar = {
        **scheduled(
            "mu",
            Param(5.0, Float(0.1, 1000.0), "mu at first", search=Choice((2.0, 5.0, 10.0))),
            Param(30.0, Float(0.1, 10000.0), "mu at last", search=Float(10.0, 100.0, log=True)),
        ),
        "rho": Param(
            0.0,
            Float(0.0, 100.0),
            "the quantizers at L_rho(w), ProxConnect's map, in place of w: rho at last, from 0.01 "
            "along a line; 0: at w itself",
            later=True,
        ),
        "scale": SCALE,
        "clamp": clamp(False),
    }

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._rho = Schedule(0.01, float(self.values["rho"]))
        self._fraction = 0.0

    def _make_schedule(self) -> Schedule:
        return self._declared_schedule("mu")

    def pair(self) -> Pair:
        if not self.values["rho"]:
            return super().pair()
        return layers.composed_pair(lambda: self._rho.at(self._fraction))

    def before_step(self, fraction: float) -> None:
        super().before_step(fraction)
        self._fraction = fraction
