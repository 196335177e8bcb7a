"""The base class of methods whose latents have an optimizer of their own. Each can begin with a
phase in which weights are real numbers in [-1, 1] and inputs are binary as planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.methods.base import Method
from bitfront.trainables.parameters import Choice, Float, Param
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


def _begins_real(share: float) -> dict[str, Param]:
    """The two parameters that all these methods have; `share` is the default of `real_share`."""
    return {
        "sign_grad": Param(
            "poly",
            Choice(("poly", "classic")),
            "gradient of the sign on inputs of B layers: max(0, 2 - 2 |x|) or 1[|x| <= 1]",
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
        return self.soft_weights or self.shared.real

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        with self.shared.trained_weights():
            yield

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
            pair = "bi-real" if self.values["sign_grad"] == "poly" else "bnn"
            self._inputs = layers.Annealed(layers.PAIRS[pair], 1.0)
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
