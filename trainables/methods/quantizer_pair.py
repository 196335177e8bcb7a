"""The base class of methods with a latent weight w*, a forward quantizer F and a backward quantizer
B, and the parameters they share (Lu et al., NeurIPS 2023; docs/methods.md 1.1):

    w*_{t+1} = w*_t - eta_t B_t(w*_t) g(F_t(w*_t))"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.methods.base import Method
from bitfront.trainables.parameters import Choice, Float, Int, Param, Value
from bitfront.trainables.training.schedules.phases import Phase
from bitfront.trainables.training.schedules.values import Schedule

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.layers.accumulators import Accumulator
    from bitfront.trainables.layers.quantizers import Pair
    from bitfront.trainables.layers.weights import Annealed


PCPP = "pcpp"


SCALE = Param(
    "none",
    Choice(("none", "layer", "channel", "power2", "learned")),
    "of the binary weights: none; mean |w| of the layer, of the output channel, or that as a "
    "power of two; or learned, one per output channel",
)


# For methods whose training does not multiply with the scale: it cannot be learned there.
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
    """The parameter of a method that says whether latents are clipped."""
    return Param(default, Choice((True, False)), "clip latents to [-1, 1] after each step")


def scheduled(name: str, start: Param, end: Param, shape: str = "linear") -> dict[str, Param]:
    """The four parameters of an annealed value, as the `schedule` form of the YAML expects them."""
    return {
        f"{name}_start": start,
        f"{name}_end": end,
        f"{name}_until": Param(
            1.0, Float(0.01, 1.0), f"fraction of training at which {name}_end is reached"
        ),
        f"{name}_shape": Param(
            shape,
            Choice(("linear", "cosine", "exponential", "steps")),
            f"of {name}'s path; steps: by factors of about ten, each for the same time",
        ),
    }


def declared_schedule(values: dict[str, Value], name: str) -> Schedule:
    """The schedule that the four parameters of `scheduled` describe."""
    start, end, until = (float(values[f"{name}_{part}"]) for part in ("start", "end", "until"))
    return Schedule(start, end, str(values[f"{name}_shape"]), until=until)


class QuantizerPair(Method):
    """Latents are quantized by one pair (F, B), inputs of B and A layers by the same one. A
    subclass with level A has the parameters `ACCUMULATOR` besides those it declares."""

    family = "pcpp"
    paper = PCPP
    levels = "FWBA"
    # A lower bound of the annealed value for the quantizer of inputs.
    input_floor: ClassVar[float] = 0.0

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "A" in cls.levels:
            missing = {name: p for name, p in ACCUMULATOR.items() if name not in cls.params}
            cls.params = {**cls.params, **missing}

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._schedule = self._make_schedule()
        self._annealed: Annealed | None = None
        self._accumulators: list[Accumulator] = []

    def _make_schedule(self) -> Schedule:
        return Schedule(1.0, 1.0, "constant")

    def _declared_schedule(self, name: str) -> Schedule:
        return declared_schedule(self.values, name)

    @property
    def annealed(self) -> Annealed:
        """The one annealed value that weights and activations share (docs/methods.md 1.9)."""
        if self._annealed is None:
            self._annealed = layers.Annealed(self.pair(), self._schedule.at(0.0))
        return self._annealed

    def pair(self) -> Pair:
        """The pair (F, B); by default the one of `quantizers.PAIRS` with the method's name."""
        return layers.PAIRS[self.name]

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
        weight: Any = layer.weight
        return layers.WeightQuantizer(self.annealed, self.scale, weight, self.before_sign(weight))

    def before_sign(self, weight: Tensor) -> nn.Module | None:
        """A module applied to the latent before it is quantized; None: nothing."""
        return None

    def input_quantizer(self, layer: nn.Module) -> nn.Module:
        return layers.InputQuantizer(self.annealed, layer, self.input_floor)

    def accumulate(self, layer: nn.Module, quantizer: nn.Module) -> None:
        bits, slope = int(self.values["acc_bits"]), float(self.values["acc_slope"])
        accumulator = layers.Accumulator(
            bits, slope, penalized=float(self.values["acc_penalty"]) > 0
        )
        self._accumulators.append(accumulator)
        layers.accumulate(layer, accumulator, quantizer)

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
        """The annealed value at this fraction of training."""
        return self._schedule.at(fraction)

    def before_step(self, fraction: float) -> None:
        self.annealed.value = self.value_at(fraction)

    def after_step(self) -> None:
        if self.values.get("clamp"):
            layers.clamp_latents(self.layers)

    def before_evaluation(self) -> None:
        for accumulator in self._accumulators:
            accumulator.take_counts()
