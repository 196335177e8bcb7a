"""Whether binary activations say anything: how the quantized inputs of B and A layers, and the
outputs of the network, respond to a few examples. In a ReLU network every sign is +1, and what a
binary layer computes is then the same for all examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from bitfront.trainables.layers.binary import BinaryLayer
from bitfront.trainables.layers.treatments import starting_shifts
from bitfront.trainables.plan import BINARY_INPUTS
from bitfront.trainables.training.norms import batch_statistics

# The smallest share of signs that must differ between examples, and the smallest difference of
# outputs relative to the largest output: below there is only rounding.
LEAST_SPREAD, LEAST_DIFFERENCE = 0.01, 1e-6


@dataclass(frozen=True)
class Response:
    """How the binary input of one layer responds: the share of +1, and its `spread`, the share of
    signs that are not the same for all examples."""

    name: str
    ones: float
    spread: float

    @property
    def degenerate(self) -> bool:
        """Whether the input says next to nothing about the example."""
        return self.spread < LEAST_SPREAD


@dataclass(frozen=True)
class Responses:
    """How a network responds: its layers with binary inputs, in the order of the plan, and whether
    outputs are finite and differ between examples."""

    layers: tuple[Response, ...]
    finite: bool
    differ: bool

    @property
    def degenerate(self) -> list[str]:
        """The layers whose binary input says next to nothing, by name."""
        return [layer.name for layer in self.layers if layer.degenerate]


def respond(model: nn.Module, binary: Iterable[BinaryLayer], x: Tensor) -> Responses:
    """The responses of a network that training has not begun with to a batch of examples. Batch
    norms use the statistics of the batch, since fresh ones have none, and shifts of inputs start
    from it; weights and inputs are those of evaluation. Statistics are left as they were."""
    layers = [layer for layer in binary if layer.level in BINARY_INPUTS]
    with _signs(layers, len(x)) as signs, batch_statistics(model), starting_shifts(model):
        out = _first_tensor(model(x)).float().flatten(1)
    finite = bool(out.isfinite().all())
    spread = (out.amax(0) - out.amin(0)).max()
    differ = finite and bool(spread > LEAST_DIFFERENCE * out.abs().max())
    found = (_response(layer.name, signs[layer.name]) for layer in layers)
    return Responses(tuple(r for r in found if r is not None), finite, differ)


def _response(name: str, seen: list[Tensor]) -> Response | None:
    """The response of one layer; None where it was not called."""
    if not seen:
        return None
    count = sum(part.numel() for part in seen)
    ones = sum(int(part.sum()) for part in seen)
    same = sum(int((part.all(0) | ~part.any(0)).sum()) for part in seen)
    return Response(name, ones / count, 1 - same * len(seen[0]) / count)


@contextmanager
def _signs(layers: Sequence[BinaryLayer], examples: int) -> Iterator[dict[str, list[Tensor]]]:
    """Inside, forward passes note which values of quantized inputs are +1, one row per example."""
    signs: dict[str, list[Tensor]] = defaultdict(list)

    def hook(name: str, out: Tensor) -> None:
        # Windows of an image are examples of their own to a layer, behind one another.
        first = out if len(out) % examples == 0 else out.transpose(0, 1)
        signs[name].append((first > 0).reshape(examples, -1))

    handles = [
        layer.module.input_quantizer.register_forward_hook(  # type: ignore[union-attr]
            lambda _m, _args, out, name=layer.name: hook(name, out)
        )
        for layer in layers
    ]
    try:
        yield signs
    finally:
        for handle in handles:
            handle.remove()


def _first_tensor(out: object) -> Tensor:
    while not isinstance(out, Tensor):
        out = next(iter(out.values() if isinstance(out, dict) else out))  # type: ignore[call-overload]
    return out
