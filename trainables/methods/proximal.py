"""ProxConnect and the schemes it is compared with, which take the gradient at another point or
update another tensor (docs/methods.md 1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.quantizer_pair import (
    FIXED_SCALE,
    SCALE,
    QuantizerPair,
    clamp,
    scheduled,
)
from bitfront.trainables.parameters import Choice, Float, Param
from bitfront.trainables.training.schedules.values import Schedule

if TYPE_CHECKING:
    from torch import nn

    from bitfront.trainables.layers.quantizers import Pair


RHO = {
    **scheduled(
        "rho",
        Param(0.01, Float(0.0, 10.0), "width of the step of L at first"),
        Param(
            10.0,
            Float(0.0, 100.0),
            "at last; L is the sign once rho is 1, with 10 after a tenth of training",
            search=Choice((1.0, 2.0, 5.0, 10.0)),
        ),
    ),
    "varrho": Param(
        1.0,
        Float(0.0, 10.0),
        "height of the step of L as a share of rho",
        search=Choice((0.0, 0.5, 1.0)),
    ),
}


class Piecewise(QuantizerPair):
    """Methods built on the piecewise-linear quantizer L (docs/methods.md 1.3)."""

    def _make_schedule(self) -> Schedule:
        return self._declared_schedule("rho")

    def pair(self) -> Pair:
        return layers.pc_pair(float(self.values["varrho"]))


@METHODS.register
class ProxConnect(Piecewise):
    name = "pc"
    paper = "proxconnect"
    doc = "F = L_rho, a sign with a ramp that vanishes, B = 1 (ProxConnect)"
    params: ClassVar = {**RHO, "scale": SCALE, "clamp": clamp(True)}


class Projected(Piecewise):
    """Schemes whose step starts from P(w*) = L_rho(w*) instead of from w* (docs/methods.md 1.1):
    the parameter itself is projected. With varrho = rho every projection adds rho to |w|, up to 1:
    all weights are at -1 or +1 once the sum of rho over the steps is 1, long before rho is 1."""

    params: ClassVar = {
        **RHO,
        "rho_end": Param(
            10.0,
            Float(0.0, 100.0),
            "at last; rho adds up over steps: small values leave time to learn",
            search=Float(1e-3, 10.0, log=True),
        ),
        "scale": FIXED_SCALE,
    }

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        weight: Any = layer.weight
        return layers.UpdatedWeight(self.annealed, self.scale, weight)

    def _project(self) -> None:
        rho = self.annealed.value
        layers.project_latents(self.layers, rho, float(self.values["varrho"]) * rho)


@METHODS.register
class ProxQuant(Projected):
    name = "pq"
    paper = "proxquant"
    doc = "w* <- P(w*) - eta g(P(w*)), P = L_rho (ProxQuant)"

    def before_step(self, fraction: float) -> None:
        super().before_step(fraction)
        self._project()


@METHODS.register
class ReverseProxConnect(Projected):
    name = "rpc"
    doc = "w* <- P(w*) - eta g(w*), P = L_rho (reverse ProxConnect)"

    def after_backward(self) -> None:
        self._project()


@METHODS.register
class PostTraining(QuantizerPair):
    name = "ptb"
    doc = "trained in full precision, the sign taken once at the end"
    levels = "FW"
    params: ClassVar = {"scale": FIXED_SCALE}

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        weight: Any = layer.weight
        return layers.UpdatedWeight(self.annealed, self.scale, weight)
