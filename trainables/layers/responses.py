"""Whether binary activations say anything: how the quantized inputs of B and A layers, and the
outputs of the network, respond to a few examples. In a ReLU network every sign is +1, and what a
binary layer computes is then the same for all examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bitfront.trainables.layers.binary import BinaryLayer
from bitfront.trainables.layers.treatments import starting_shifts
from bitfront.trainables.plan import BINARY_INPUTS
from bitfront.trainables.training.norms import batch_statistics

# The smallest share of signs that must differ between examples, and the smallest difference of
# outputs relative to the largest output: below there is only rounding.
LEAST_SPREAD, LEAST_DIFFERENCE = 0.01, 1e-6
# The deviation of the values that parameters which start at 0 are tried with.
WAKING = 0.1


@dataclass(frozen=True)
class Response:
    """How the binary input of one layer responds: the share of +1, and its `spread`, the share of
    signs that are not the same for all examples. `fixed`: the input itself, before its sign, is the
    same for all examples, as that of a table of positions is."""

    name: str
    ones: float
    spread: float
    fixed: bool = False

    @property
    def degenerate(self) -> bool:
        """Whether the sign of the input says next to nothing about an example."""
        return self.spread < LEAST_SPREAD and not self.fixed


@dataclass(frozen=True)
class Responses:
    """How a network responds: its layers with binary inputs, in the order of their calls, and
    whether outputs are finite and differ between examples. `hidden`: they do not, but only because
    of parameters that start at 0, such as the weight of a classifier or a scale: with other values
    of these, which training will give them, they differ."""

    layers: tuple[Response, ...]
    finite: bool
    differ: bool
    hidden: bool = False

    @property
    def constant(self) -> bool:
        """Whether the output is the same for all examples, whatever parameters that start at 0
        become."""
        return self.finite and not self.differ and not self.hidden

    @property
    def degenerate(self) -> list[str]:
        """The layers whose binary input says next to nothing, by name."""
        return [layer.name for layer in self.layers if layer.degenerate]


def respond(model: nn.Module, binary: Iterable[BinaryLayer], x: Tensor) -> Responses:
    """The responses of a network that training has not begun with to a batch of examples. Batch
    norms use the statistics of the batch, since fresh ones have none, and shifts of inputs start
    from it; weights and inputs are those of evaluation. Statistics are left as they were."""
    layers = [layer for layer in binary if layer.level in BINARY_INPUTS]
    with _noted(layers, len(x)) as seen:
        out = _output(model, x)
    finite, hidden = bool(out.isfinite().all()), False
    differ = finite and _differs(out)
    if finite and not differ:
        with _woken(model) as any_woken:
            hidden = any_woken and _differs(_output(model, x))
    return Responses(tuple(_responses(seen)), finite, differ, hidden)


def _output(model: nn.Module, x: Tensor) -> Tensor:
    """A row of outputs per example."""
    with batch_statistics(model), starting_shifts(model):
        return _first_tensor(model(x)).float().flatten(1)


def _differs(out: Tensor) -> bool:
    """Whether outputs are not the same for all examples."""
    return bool((out.amax(0) - out.amin(0)).max() > LEAST_DIFFERENCE * out.abs().max())


@contextmanager
def _woken(model: nn.Module) -> Iterator[bool]:
    """Inside, parameters that are 0 have small random values, those of biases excepted, which hide
    nothing; gives whether there are any."""
    asleep = [
        parameter
        for name, parameter in model.named_parameters()
        if not name.endswith("bias") and parameter.is_floating_point() and not parameter.any()
    ]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in asleep:
            made = torch.randn(parameter.shape, generator=generator) * WAKING
            parameter.copy_(made)
        try:
            yield bool(asleep)
        finally:
            for parameter in asleep:
                parameter.zero_()


@dataclass
class _Seen:
    """What was counted of one layer's inputs: values, values that are +1, values whose sign is the
    same for all examples, and whether some value is not."""

    values: int = 0
    ones: int = 0
    same: int = 0
    varies: bool = False


def _responses(seen: dict[str, _Seen]) -> Iterator[Response]:
    """The responses of layers in the order of their calls. Behind a layer whose signs are all the
    same an input that does not vary is the consequence, and not fixed by itself."""
    lost = False
    for name, counts in seen.items():
        found = Response(
            name,
            counts.ones / counts.values,
            1 - counts.same / counts.values,
            fixed=not counts.varies and not lost,
        )
        lost = lost or found.degenerate
        yield found


@contextmanager
def _noted(layers: Sequence[BinaryLayer], examples: int) -> Iterator[dict[str, _Seen]]:
    """Inside, forward passes count the inputs of layers, before and behind their quantizers."""
    seen: dict[str, _Seen] = {}

    def note(name: str, x: Tensor, out: Tensor) -> None:
        counts = seen.setdefault(name, _Seen())
        counts.values += out.numel()
        counts.ones += int((out > 0).sum())
        values, signs = (_by_example(tensor, examples) for tensor in (x, out))
        if signs is None or values is None:  # of no example: a table of positions, say
            counts.same += out.numel()
            return
        counts.same += int((signs == signs[:1]).all(0).sum()) * examples
        counts.varies = counts.varies or not bool((values == values[:1]).all())

    handles = [
        layer.module.input_quantizer.register_forward_hook(  # type: ignore[union-attr]
            lambda _m, args, out, name=layer.name: note(name, args[0], out)
        )
        for layer in layers
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _by_example(tensor: Tensor, examples: int) -> Tensor | None:
    """The tensor with one row per example; None where no dimension is that of examples. Windows of
    an image are examples of their own to a layer, behind one another."""
    if len(tensor) % examples == 0:
        return tensor.reshape(examples, -1)
    if tensor.dim() > 1 and tensor.shape[1] == examples:
        return tensor.transpose(0, 1).reshape(examples, -1)
    return None


def _first_tensor(out: object) -> Tensor:
    while not isinstance(out, Tensor):
        out = next(iter(out.values() if isinstance(out, dict) else out))  # type: ignore[call-overload]
    return out
