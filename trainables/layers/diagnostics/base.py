"""What a diagnostic is: a ratio of two sums over the layers of a network (docs/methods.md 1.16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from bitfront.trainables.layers.binary import BinaryLayer
from bitfront.trainables.registry import Registry


@dataclass(frozen=True)
class State:
    """One layer after an epoch; `before` are its signs before the epoch, 0 for pruned weights."""

    layer: BinaryLayer
    before: Tensor

    @cached_property
    def now(self) -> Tensor:
        """Its signs after the epoch, 0 for pruned weights."""
        return self.layer.hard_parts()[0]

    @cached_property
    def forward_backward(self) -> tuple[Tensor, Tensor]:
        """(F(w*), B(w*)) at its latent w*."""
        return self.layer.forward_backward()

    @property
    def pruned(self) -> bool:
        return self.layer.kept is not None


@dataclass(frozen=True)
class Diagnostic:
    """A number reported after every epoch: the ratio sum a / sum n over the layers. `count`
    returns (a, n) of one layer, or None for a layer to which the diagnostic does not apply."""

    name: str
    doc: str
    count: Callable[[State], tuple[float, int] | None]


DIAGNOSTICS: Registry[Diagnostic] = Registry("diagnostic", package=__package__)


def diagnose(layers: Sequence[BinaryLayer], before: Sequence[Tensor]) -> dict[str, float]:
    """The values of all diagnostics that apply to one of the layers, by name; `before` are the
    signs of the layers before the epoch."""
    diagnostics = DIAGNOSTICS.items()
    amounts: dict[str, float] = {}
    counts: dict[str, int] = {}
    for layer, signs in zip(layers, before, strict=True):
        state = State(layer, signs)
        for name, diagnostic in diagnostics:
            found = diagnostic.count(state)
            if found is not None:
                amounts[name] = amounts.get(name, 0) + found[0]
                counts[name] = counts.get(name, 0) + found[1]
    return {name: amount / max(1, counts[name]) for name, amount in amounts.items()}
