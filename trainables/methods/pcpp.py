"""The ProxConnect++ family: a latent weight, a forward quantizer F and a backward quantizer B,
w* <- w* - eta B(w*) g(F(w*)) (methods.md 1.1, 1.2); and the schemes it is compared with, which take
the gradient or make the step elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables.methods.base import METHODS, LatentMethod, Method
from bitfront.trainables.parameters import Choice, Float, Int, Param, Value
from bitfront.trainables.training.phases import Phase
from bitfront.trainables.training.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.layers.binary import Annealed
    from bitfront.trainables.layers.quantizers import Pair

PCPP = (
    "Lu et al., Understanding Neural Network Binarization with Forward and Backward Proximal "
    "Quantizers, NeurIPS 2023"
)

SCALE = Param(
    "none",
    Choice(("none", "layer", "channel", "power2", "learned")),
    "of the binary weights: none; mean |w| of the layer, of the output channel, or that as a "
    "power of two; or learned, one an output channel",
)
# Where training does not multiply with the scale, it cannot be learned.
FIXED_SCALE = Param(
    "none",
    Choice(("none", "layer", "channel", "power2")),
    "of the binary weights: none; mean |w| of the layer, of the output channel, or that as a "
    "power of two",
)

ACCUMULATOR = {
    "acc_bits": Param(
        8, Int(2, 24), "of the accumulators of A layers", search=Choice((6, 8, 10, 12))
    ),
    "acc_slope": Param(
        2.0,
        Float(0.1, 64.0),
        "how fast the cyclic activation of A layers falls at the ends of its range",
        search=Choice((1.0, 2.0, 4.0, 8.0)),
    ),
    "acc_penalty": Param(
        0.0,
        Float(0.0, 10.0),
        "weight in the loss of how far sums of A layers exceed the accumulator",
        search=Float(1e-5, 1e-2, log=True),
    ),
}


def clamp(default: bool) -> Param:
    return Param(default, Choice((True, False)), "clip latents to [-1, 1] after each step")


def scheduled(name: str, start: Param, end: Param, shape: str = "linear") -> dict[str, Param]:
    """The four parameters of a value that is annealed, as the `schedule` form of the YAML wants
    them."""
    return {
        f"{name}_start": start,
        f"{name}_end": end,
        f"{name}_until": Param(
            1.0, Float(0.01, 1.0), f"fraction of training at which {name}_end is reached"
        ),
        f"{name}_shape": Param(
            shape, Choice(("linear", "cosine", "exponential")), f"of {name}'s path"
        ),
    }


def declared_schedule(values: dict[str, Value], name: str) -> Schedule:
    """The path that the four parameters of `scheduled` describe."""
    start, end, until = (float(values[f"{name}_{part}"]) for part in ("start", "end", "until"))
    return Schedule(start, end, str(values[f"{name}_shape"]), until=until)


@METHODS.register("fp")
class FullPrecision(Method):
    name = "fp"
    family = "full precision"
    paper = PCPP
    doc = "F(w) = w, B(w) = 1: the upper bound; every layer stays in full precision"
    levels = "F"


class QuantizerPair(LatentMethod):
    """Latents through one (F, B) pair, inputs of B and A layers through the same one."""

    family = "pcpp"
    paper = PCPP
    levels = "FWBA"
    # The least annealed value inputs are quantized with.
    input_floor: ClassVar[float] = 0.0

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._schedule = self._make_schedule()
        self._annealed: Annealed | None = None

    def _make_schedule(self) -> Schedule:
        return Schedule(1.0, 1.0, "constant")

    def _declared_schedule(self, name: str) -> Schedule:
        return declared_schedule(self.values, name)

    @property
    def annealed(self) -> Annealed:
        """The one annealed value that weights and activations share (methods.md 1.9)."""
        if self._annealed is None:
            from bitfront.trainables.layers.binary import Annealed

            self._annealed = Annealed(self.pair(), self._schedule.at(0.0))
        return self._annealed

    def pair(self) -> Pair:
        """F and B; by default those `quantizers.PAIRS` has under the method's name."""
        from bitfront.trainables.layers.quantizers import PAIRS

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
        from bitfront.trainables.layers.binary import WeightQuantizer

        weight: Any = layer.weight
        return WeightQuantizer(self.annealed, self.scale, weight, self.before_sign(weight))

    def before_sign(self, weight: Tensor) -> nn.Module | None:
        """What the latent goes through before it is quantized."""
        return None

    def input_quantizer(self, layer: nn.Module) -> nn.Module:
        from bitfront.trainables.layers.binary import InputQuantizer

        return InputQuantizer(self.annealed, layer, self.input_floor)

    def accumulate(self, layer: nn.Module, quantizer: nn.Module) -> None:
        from bitfront.trainables.layers.binary import Accumulator, accumulate

        bits, slope = int(self.values["acc_bits"]), float(self.values["acc_slope"])
        accumulator = Accumulator(bits, slope, penalized=float(self.values["acc_penalty"]) > 0)
        self._accumulators.append(accumulator)
        accumulate(layer, accumulator, quantizer)

    def penalty(self) -> Tensor | None:
        excess = [a.excess for a in self._accumulators if a.excess is not None]
        if not excess:
            return None
        for accumulator in self._accumulators:
            accumulator.excess = None
        return float(self.values["acc_penalty"]) * sum(excess[1:], excess[0])

    def enter(self, phase: Phase) -> None:
        for layer in self.layers:
            layer.quantizer.start(layer.latent.detach())  # type: ignore[operator]

    def value_at(self, fraction: float) -> float:
        """The annealed value after so much of training."""
        return self._schedule.at(fraction)

    def before_step(self, fraction: float) -> None:
        self.annealed.value = self.value_at(fraction)

    def after_step(self) -> None:
        if self.values.get("clamp"):
            from bitfront.trainables.layers.binary import clamp_latents

            clamp_latents(self.layers)

    def before_evaluation(self) -> None:
        for accumulator in self._accumulators:
            accumulator.take_counts()


@METHODS.register("bc")
class BinaryConnect(QuantizerPair):
    name = "bc"
    doc = "F = sign, B = 1 (BinaryConnect)"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(True), **ACCUMULATOR}


@METHODS.register("bnn")
class BNN(QuantizerPair):
    name = "bnn"
    doc = "F = sign, B = 1[|w| <= 1]"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(True), **ACCUMULATOR}


@METHODS.register("bnn+")
class BNNPlus(QuantizerPair):
    name = "bnn+"
    doc = "F = sign, B = SS'_mu, the slope of the sign-Swish, mu fixed"
    params: ClassVar = {
        "mu": Param(5.0, Float(0.1, 1000.0), "sharpness", search=Float(2.0, 10.0, log=True)),
        "scale": SCALE,
        "clamp": clamp(False),
        **ACCUMULATOR,
    }

    def _make_schedule(self) -> Schedule:
        return Schedule(float(self.values["mu"]), float(self.values["mu"]), "constant")


@METHODS.register("bnn++")
class BNNPlusPlus(QuantizerPair):
    name = "bnn++"
    doc = "F = SS_mu, B = SS'_mu, mu annealed; evaluated with the sign"
    params: ClassVar = {
        **scheduled(
            "mu",
            Param(5.0, Float(0.1, 1000.0), "mu at first", search=Choice((2.0, 5.0, 10.0))),
            Param(30.0, Float(0.1, 10000.0), "mu at last", search=Float(10.0, 100.0, log=True)),
        ),
        "scale": SCALE,
        "clamp": clamp(False),
        **ACCUMULATOR,
    }

    def _make_schedule(self) -> Schedule:
        return self._declared_schedule("mu")


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
    """Methods built on the piecewise-linear quantizer L (methods.md 1.3)."""

    def _make_schedule(self) -> Schedule:
        return self._declared_schedule("rho")

    def pair(self) -> Pair:
        from bitfront.trainables.layers.quantizers import pc_pair

        return pc_pair(float(self.values["varrho"]))


@METHODS.register("pc")
class ProxConnect(Piecewise):
    name = "pc"
    doc = "F = L_rho, a sign with a ramp that vanishes, B = 1 (ProxConnect)"
    params: ClassVar = {**RHO, "scale": SCALE, "clamp": clamp(True), **ACCUMULATOR}


class Projected(Piecewise):
    """Schemes that step from P(w*) = L_rho(w*) instead of from w* (methods.md 1.1): the parameter
    itself is projected. With varrho = rho each step adds rho to every |w|, so the corners are
    reached when the sum of rho over the steps is 1, long before rho is."""

    params: ClassVar = {
        **RHO,
        "rho_end": Param(
            10.0,
            Float(0.0, 100.0),
            "at last; rho adds up over steps: small values leave time to learn",
            search=Float(1e-3, 10.0, log=True),
        ),
        "scale": FIXED_SCALE,
        **ACCUMULATOR,
    }

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        from bitfront.trainables.layers.binary import UpdatedWeight

        weight: Any = layer.weight
        return UpdatedWeight(self.annealed, self.scale, weight)

    def _project(self) -> None:
        from bitfront.trainables.layers.binary import project_latents

        rho = self.annealed.value
        project_latents(self.layers, rho, float(self.values["varrho"]) * rho)


@METHODS.register("pq")
class ProxQuant(Projected):
    name = "pq"
    doc = "w* <- P(w*) - eta g(P(w*)), P = L_rho (ProxQuant)"

    def before_step(self, fraction: float) -> None:
        super().before_step(fraction)
        self._project()


@METHODS.register("rpc")
class ReverseProxConnect(Projected):
    name = "rpc"
    doc = "w* <- P(w*) - eta g(w*), P = L_rho (reverse ProxConnect)"

    def after_backward(self) -> None:
        self._project()


@METHODS.register("ptb")
class PostTraining(QuantizerPair):
    name = "ptb"
    doc = "trained in full precision, the sign taken once at the end"
    levels = "FW"
    params: ClassVar = {"scale": FIXED_SCALE}

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        from bitfront.trainables.layers.binary import UpdatedWeight

        weight: Any = layer.weight
        return UpdatedWeight(self.annealed, self.scale, weight)


@METHODS.register("bi-real")
class BiReal(QuantizerPair):
    name = "bi-real"
    paper = "Liu et al., Bi-Real Net, ECCV 2018"
    doc = "F = sign, B = max(0, 2 - 2 |w|)"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(False), **ACCUMULATOR}


def _sharpness(start: float) -> dict[str, Param]:
    return scheduled(
        "t",
        Param(start, Float(1e-4, 100.0), "sharpness at first", search=Choice((1e-3, 1e-2, 1e-1))),
        Param(10.0, Float(1e-4, 1000.0), "sharpness at last", search=Choice((5.0, 10.0, 20.0))),
        shape="exponential",
    )


class Sharpening(QuantizerPair):
    """Pairs with a sharpness t that grows exponentially and a gain k = max(1/t, 1)."""

    def _make_schedule(self) -> Schedule:
        return self._declared_schedule("t")


@METHODS.register("r-bnn")
class RotatedBNN(Sharpening):
    name = "r-bnn"
    paper = "Lin et al., Rotated Binary Neural Network, NeurIPS 2020"
    doc = "F = sign, B = k max(0, sqrt(2) t - t^2 |w|), t annealed; the rotation is an option"
    # Inputs are quantized with k = 1 (methods.md 1.6).
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
        **ACCUMULATOR,
    }

    def before_sign(self, weight: Tensor) -> nn.Module | None:
        from bitfront.trainables.layers.binary import Rotated

        return Rotated(weight) if self.values["rotate"] else None

    def before_epoch(self) -> None:
        if self.values["rotate"]:
            for layer in self.layers:
                layer.quantizer.before.estimate(layer.latent.detach())  # type: ignore[union-attr, operator]
        super().before_epoch()


@METHODS.register("poly+")
class PolyPlus(Sharpening):
    name = "poly+"
    doc = "F = the primitive of R-BNN's slope, B = that slope, t annealed; evaluated with the sign"
    input_floor = 1.0
    params: ClassVar = {**_sharpness(1e-2), "scale": SCALE, "clamp": clamp(False), **ACCUMULATOR}


class ErrorDecay(Sharpening):
    paper = "Qin et al., Forward and Backward Information Retention (IR-Net), CVPR 2020"
    params: ClassVar = {
        **_sharpness(1e-1),
        "standardize": Param(
            False, Choice((True, False)), "latents to mean 0 and deviation 1 in each channel first"
        ),
        "scale": SCALE,
        "clamp": clamp(False),
        **ACCUMULATOR,
    }

    def before_sign(self, weight: Tensor) -> nn.Module | None:
        from bitfront.trainables.layers.binary import Standardized

        return Standardized() if self.values["standardize"] else None


@METHODS.register("ede")
class EDE(ErrorDecay):
    name = "ede"
    doc = "F = sign, B = k t (1 - tanh^2(t w)), t annealed (IR-Net's error decay estimator)"


@METHODS.register("ede+")
class EDEPlus(ErrorDecay):
    name = "ede+"
    paper = PCPP
    doc = "F = k tanh(t w), B = its slope, t annealed; evaluated with the sign"


@METHODS.register("react")
class ReAct(QuantizerPair):
    name = "react"
    paper = "Liu et al., ReActNet, ECCV 2020"
    doc = "F = sign(w - a), B = max(0, 2 - 2 |w - a|), a shift a learned for every channel"
    params: ClassVar = {"scale": SCALE, "clamp": clamp(False), **ACCUMULATOR}

    @property
    def shifts_inputs(self) -> bool:
        return True
