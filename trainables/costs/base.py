"""What a cost declares: its name, its label, and the function that counts it per layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitfront.trainables.plan import BY_LETTER, Level
from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    from bitfront.trainables.cost import CostTable
    from bitfront.trainables.costs.devices import DeviceTable


@dataclass(frozen=True)
class LayerTrace:
    """The counts of one layer in a forward pass of one example: n = `macs` and e = `elements`, the
    output elements. A layer is a convolution, a linear layer or a product of two activations.
    `role`: what it is for, where that is known; `tied`: the layer whose weight it shares."""

    name: str
    kind: str
    macs: int
    elements: int
    weights: int
    channels: int
    inputs: int
    planned: bool
    role: str = ""
    tied: str = ""


@dataclass(frozen=True)
class KeptChannels:
    """What is left of a layer whose channels are removed: its weights and its output channels."""

    weights: int
    channels: int


@dataclass(frozen=True)
class PlannedLayer:
    """A traced layer at a level of a plan. `scale`: how many scales a binary layer keeps; `shifts`:
    how many numbers per input channel layers with binary inputs keep; `kept`: the weights that
    pruning leaves, None where the layer is not pruned; `channels`: the output channels that are
    left, None where all are; `network`: the identity of its network, for costs that are looked
    up."""

    layer: LayerTrace
    letter: str
    scale: str = "none"
    shifts: int = 0
    kept: int | None = None
    channels: int | None = None
    network: str = ""

    @property
    def level(self) -> Level:
        return BY_LETTER[self.letter]

    @property
    def weights(self) -> int:
        """The weights that are left."""
        return self.layer.weights if self.kept is None else self.kept

    @property
    def macs(self) -> float:
        """n; of a pruned layer n kept / weights."""
        if self.kept is None:
            return self.layer.macs
        return self.layer.macs * self.kept / self.layer.weights

    @property
    def elements(self) -> float:
        """e; of a layer whose channels are removed e left / channels."""
        if self.channels is None:
            return self.layer.elements
        return self.layer.elements * self.channels / self.layer.channels


@dataclass(frozen=True)
class Cost:
    """A cost of a planned network: the sum of `of_layer` over its layers, plus `of_rest` of the
    whole network. A cost without `of_layer` is the same for every plan. `percent_of` names the cost
    that this one states as a percentage; which full-precision network is 100 % is decided by the
    caller (`spaces.space`). A cost that was measured on a machine has neither: `on` makes one of a
    device table that has both, and only where there is a table the cost is known."""

    name: str
    label: str
    doc: str
    of_layer: Callable[[PlannedLayer], float] | None = None
    of_rest: Callable[[CostTable], float] | None = None
    percent_of: str | None = None
    on: Callable[[DeviceTable], Cost] | None = None
    place: int = 100
    """its position in listings, in ascending order"""


COSTS: Registry[Cost] = Registry("cost", package=__package__)


def _in_place() -> list[Cost]:
    return sorted((cost for _, cost in COSTS.items()), key=lambda cost: (cost.place, cost.name))


def cost_names() -> tuple[str, ...]:
    """The names of all costs, in the order of listings."""
    return tuple(cost.name for cost in _in_place())


def cost_labels() -> dict[str, str]:
    """The labels of figure axes, by name of the cost."""
    return {cost.name: cost.label for cost in _in_place()}


def summed() -> list[Cost]:
    """The costs that are sums over layers, in the order of listings."""
    return [cost for cost in _in_place() if cost.of_layer is not None]


def measured() -> list[Cost]:
    """The costs that are known where there is a device table only."""
    return [cost for cost in _in_place() if cost.on is not None]


def bound(device: DeviceTable | None) -> list[Cost]:
    """The same of this device, ready to be counted; none without one."""
    return [] if device is None else [cost.on(device) for cost in measured() if cost.on]
