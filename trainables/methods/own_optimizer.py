"""The base class of methods whose latents have an optimizer of their own. Each can begin with a
phase in which weights are real numbers in [-1, 1] and inputs are binary as planned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.methods.base import Method
from bitfront.trainables.parameters import Choice, Float, Param
from bitfront.trainables.settings import LearningRateSpec
from bitfront.trainables.training.schedules.phases import Phase

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bitfront.trainables.layers.binary import BinaryLayer
    from bitfront.trainables.layers.latents import Latent, Shared
    from bitfront.trainables.layers.weights import Annealed


RATES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)


def rate(default: float) -> Param:
    """The parameter of a method that is a learning rate."""
    return Param(
        default,
        Float(1e-9, 100.0),
        "learning rate of the binary weights, on the task's schedule",
        search=Choice(RATES),
    )


def rate_schedule() -> dict[str, Param]:
    """The parameters of a method whose learning rate may have a schedule of its own."""
    return {
        "lr_shape": Param(
            "task",
            Choice(("task", "constant", "linear", "cosine", "steps")),
            "of the path of lr: that of the task, or one of its own; linear and cosine end at 0",
            later=True,
        ),
        "lr_every": Param(
            0.2,
            Float(1e-4, 1.0),
            "fraction of training after which lr_shape: steps multiplies lr by lr_factor again",
            later=True,
        ),
        "lr_factor": Param(0.1, Float(1e-4, 1.0), "of each of these steps", later=True),
    }


def _begins_real(share: float) -> dict[str, Param]:
    """The parameters that all these methods have; `share` is the default of `real_share`."""
    return {
        "sign_grad": Param(
            "poly",
            Choice(("poly", "classic", "tanh")),
            "gradient of the sign on inputs of B layers: max(0, 2 - 2 |x|), 1[|x| <= 1], or that "
            "of tanh(k x), which training then computes with in place of the sign",
            search=Choice(("poly", "classic")),
        ),
        "sharpness": Param(
            5.0, Float(1.0, 1000.0), "k of sign_grad: tanh", search=Float(1.0, 20.0), later=True
        ),
        "real_share": Param(
            share,
            Float(0.0, 0.95),
            "share of the epochs with real weights first, clipped to [-1, 1]; the best of them is "
            "made binary",
        ),
    }


class OwnOptimizer(Method):
    """A method whose latents have their own optimizer."""

    family = "optimizers"
    levels = "FWB"
    # Whether training multiplies with other weights than the signs of evaluation.
    soft_weights: ClassVar[bool] = False

    def __init__(self, given: dict[str, object] | None = None) -> None:
        super().__init__(given)
        self._shared: Shared | None = None
        self._inputs: Annealed | None = None
        self.own: torch.optim.Optimizer | None = None

    @property
    def shared(self) -> Shared:
        if self._shared is None:
            self._shared = layers.Shared()
        return self._shared

    @property
    def soft(self) -> bool:
        return self.soft_weights or self.shared.real or self.soft_inputs

    @property
    def soft_inputs(self) -> bool:
        """Whether training computes with inputs that are not binary."""
        return self._inputs is not None and self._inputs.pair.soft

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        with self.shared.trained_weights():
            if self._inputs is not None:
                self._inputs.as_trained = True
            try:
                yield
            finally:
                if self._inputs is not None:
                    self._inputs.as_trained = False

    def make_latent(self, weight: Tensor) -> Latent:
        """The parametrization of a weight."""
        raise NotImplementedError

    def make_optimizer(self, latents: list[nn.Parameter]) -> torch.optim.Optimizer:
        raise NotImplementedError

    def weight_quantizer(self, layer: nn.Module) -> nn.Module:
        weight: Any = layer.weight
        return self.make_latent(weight)

    def input_quantizer(self, layer: nn.Module) -> nn.Module:
        if self._inputs is None:
            # EDE+ is tanh(t x) for t >= 1.
            pairs = {"poly": "bi-real", "classic": "bnn", "tanh": "ede+"}
            pair = layers.PAIRS[pairs[str(self.values["sign_grad"])]]
            value = float(self.values["sharpness"]) if pair.soft else 1.0
            self._inputs = layers.Annealed(pair, value)
        return layers.InputQuantizer(self._inputs, layer)

    def phases(self, epochs: int) -> Sequence[Phase]:
        real = share_of(float(self.values["real_share"]), epochs)
        first = [Phase("real", real, real=True)] if real else []
        return [*first, *self.binary_phases(epochs - real, best=real > 0)]

    def binary_phases(self, epochs: int, best: bool) -> Sequence[Phase]:
        return [Phase("binary", epochs, best=best)]

    def enter(self, phase: Phase) -> None:
        self.shared.real = phase.real
        if phase.real:
            return
        for layer in self.layers:
            if phase.task:
                self.next_task(layer)
            else:
                layer.quantizer.start(layer.latent.detach())  # type: ignore[operator]

    def next_task(self, layer: BinaryLayer) -> None:
        """Called for every layer when the next task of continual learning begins."""

    def rate_path(self, of_task: LearningRateSpec) -> LearningRateSpec:
        shape: Any = self.values.get("lr_shape", "task")
        if shape == "task":
            return of_task
        every, factor = (float(self.values[f"lr_{part}"]) for part in ("every", "factor"))
        at = [k * every for k in range(1, math.ceil(1 / every))]
        return LearningRateSpec(shape=shape, at=at, factor=factor)

    def own_optimizer(self) -> torch.optim.Optimizer | None:
        self.own = None
        if self.layers and not self.shared.real:
            self.own = self.make_optimizer([layer.latent for layer in self.layers])
        return self.own

    def after_step(self) -> None:
        if self.shared.real:
            layers.clamp_latents(self.layers)

    def set_group(self, key: str, value: float) -> None:
        """Set one option of the latents' optimizer."""
        if self.own is not None:
            for group in self.own.param_groups:
                group[key] = value


def share_of(share: float, epochs: int) -> int:
    """The number of epochs in this share of all. Where it is above 0, at least one epoch is in the
    share and at least one outside it."""
    if not share or epochs < 2:
        return 0
    return min(epochs - 1, max(1, round(share * epochs)))
