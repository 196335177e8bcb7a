"""One binary layer on packed bits: its geometry, its weights as a kernel reads them, what follows
its sums. `jobs` makes of it, and of those beside it, what is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfront.trainables.layers.inputs import by_channel
from bitfront.trainables.runtime.kernels import lookup, popcount
from bitfront.trainables.runtime.kernels.outputs import Operation
from bitfront.trainables.runtime.machine import Kernel, best_kernel, counts_vectors
from bitfront.trainables.runtime.thresholds import places, thresholds
from bitfront.trainables.structure.kinds import is_convolution, outputs_of

# The sums of the look-up kernel are 16 bits wide; floats hold integers up to the second exactly.
LARGEST_SUM, LARGEST_EXACT = 2**16 - 1, 2**24
FEWEST_INPUTS = 8
# The order of operations that kernels compute at once; what is missing does nothing,
# not even to the sign of a zero.
TOGETHER = {
    Operation.MULTIPLY: (1.0,),
    Operation.ADD: (-0.0,),
    Operation.LINEAR: (1.0, -0.0),
    Operation.RESIDUAL: (),
    Operation.AT_LEAST: (-np.inf,),
    Operation.AT_MOST: (np.inf,),
}


def misfit(layer: nn.Module) -> str | None:
    """Why no kernel computes this binary layer; None: one does."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    if not isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):
        return f"{type(layer).__name__} has no kernel"
    if not hasattr(layer, "output_scale"):
        return "its sums are not those of signs"
    if is_convolution(layer) and layer.padding_mode != "zeros":
        return f"padding with {layer.padding_mode}"
    inputs = weight[0].numel()
    if weight.shape[1] < FEWEST_INPUTS:
        return f"{weight.shape[1]} inputs per group: torch is faster"
    if inputs > LARGEST_EXACT:
        return f"{inputs} inputs per output: floats do not hold such sums exactly"
    if not bool((weight.abs() == 1).all()):
        return "pruned weights"
    if not by_channel(layer.input_quantizer, layer):  # type: ignore[arg-type]
        return "signs of its inputs that depend on more than their channel"
    return None


@dataclass(frozen=True)
class Geometry:
    """Where a layer reads its inputs. A linear layer is a convolution with one tap over an image of
    one row, and so is one in one dimension."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    """left, right, top, bottom"""
    groups: int = 1

    @classmethod
    def of(cls, layer: nn.Module) -> Geometry:
        if not isinstance(layer, nn.Conv1d | nn.Conv2d):
            return cls()
        left, right, *rest = layer._reversed_padding_repeated_twice
        top, bottom = rest or (0, 0)
        return cls(
            kernel=_two(layer.kernel_size),
            stride=_two(layer.stride),
            dilation=_two(layer.dilation),
            padding=(left, right, top, bottom),
            groups=layer.groups,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """As kernels take it."""
        return (*self.kernel, *self.stride, *self.dilation, self.groups)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """The size of the outputs of an image."""
        left, right, top, bottom = self.padding
        sizes = (height + top + bottom, width + left + right)
        values = zip(sizes, self.kernel, self.stride, self.dilation, strict=True)
        rows, columns = ((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in values)
        return rows, columns


def _two(values: Sequence[int]) -> tuple[int, int]:
    """Two numbers, of which the first is 1 where there is one only."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


@dataclass
class Program:
    """The operations on sums before they are stored (`kernels.outputs`)."""

    channels: int
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)

    def add(self, operation: Operation, *values: Tensor | float) -> None:
        """One more operation, with one number per channel or one for all."""
        first = len(self.vectors)
        for value in values:
            given = value.detach().flatten().numpy() if isinstance(value, Tensor) else value
            self.vectors.append(np.broadcast_to(np.float32(given), self.channels))
        self.rows.append((int(operation), first, max(first, len(self.vectors) - 1)))

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """As kernels take it."""
        vectors = self.vectors or [np.zeros(self.channels, np.float32)]
        # An operation without values may name a row that is not there.
        rows = [(code, *(min(n, len(vectors) - 1) for n in rest)) for code, *rest in self.rows]
        return np.array(rows, np.int64).reshape(-1, 3), np.stack(vectors).astype(np.float32)

    def together(self) -> NDArray[np.float32] | None:
        """The vectors of all operations of `TOGETHER`; None where the program has others, or has
        them in another order."""
        order = list(TOGETHER)
        codes = [Operation(code) for code, _, _ in self.rows]
        places = [order.index(code) if code in order else -1 for code in codes]
        if -1 in places or sorted(set(places)) != places:
            return None
        made: list[Any] = []
        for operation, neutral in TOGETHER.items():
            if operation in codes:
                _, first, _ = self.rows[codes.index(operation)]
                made += self.vectors[first : first + len(neutral)]
            else:
                made += [np.full(self.channels, value) for value in neutral]
        return np.stack(made).astype(np.float32)


class Finished(nn.Module):
    """Something whose outputs go through a program before they are stored."""

    def __init__(self, channels: int, dimensions: int) -> None:
        super().__init__()
        self.channels = channels
        self.dimensions = dimensions
        """of a batch of inputs; 2: channels are the last one, of however many"""
        self.program = Program(channels)


class Floats(Finished):
    """Layers behind one in full precision, whose outputs a program computes: batch norm, activation
    and shortcut."""


class Packed(Finished):
    """A binary layer as kernels compute it."""

    def __init__(self, layer: nn.Module, kernel: Kernel | None = None) -> None:
        linear = isinstance(layer, nn.Linear)
        super().__init__(outputs_of(layer), 2 if linear else layer.weight.dim())  # type: ignore[operator]
        self.geometry = Geometry.of(layer)
        self.last = channels_last(layer.weight)  # type: ignore[arg-type]
        self.least = places(thresholds(layer))
        self.makes_batches = _makes_batches(layer)
        """whether its shifts make a batch of one of a single example"""
        signs: Any = layer.weight.detach().numpy()  # type: ignore[operator]
        signs = signs.reshape(*signs.shape[:2], *self.geometry.kernel)
        self.inputs = signs.shape[1]
        if layer.output_scale is not None:
            self.program.add(Operation.MULTIPLY, layer.output_scale)  # type: ignore[arg-type]
        if layer.bias is not None:
            self.program.add(Operation.ADD, layer.bias)  # type: ignore[arg-type]
        self.kernel = kernel or best_kernel()
        groups = self.geometry.groups
        if self.kernel is Kernel.LOOKUP and (self.inputs % 4 or signs[0].size > LARGEST_SUM):
            self.kernel = Kernel.POPCOUNT
        if self.kernel is Kernel.LOOKUP:
            self.vectors = 2 if self.channels // groups > lookup.LANES else 1
            self.weights: Any = lookup.packed_weights(signs, groups, self.vectors)
        else:
            self.vectors = _vectors(self.channels // groups)
            self.weights, self.ones = popcount.packed_weights(signs, groups, self.vectors)


def _makes_batches(layer: nn.Module) -> bool:
    quantizer: nn.Module = layer.input_quantizer  # type: ignore[assignment]
    shapes = [tensor.dim() for tensor in (*quantizer.parameters(), *quantizer.buffers())]
    dimensions = 2 if isinstance(layer, nn.Linear) else layer.weight.dim()  # type: ignore[operator]
    return dimensions > 2 and dimensions in shapes


def _vectors(outputs: int) -> int:
    """How many vectors of outputs a tile of the kernel that counts bits has: a load of an input is
    worth about half a vector."""
    if not counts_vectors():
        return 1
    lanes = popcount.LANES
    return min((4, 2, 1), key=lambda count: -(-outputs // (lanes * count)) * (count + 0.5))


def channels_last(x: Tensor) -> bool:
    """Whether torch takes a tensor of images for one whose channels come last."""
    fits = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return fits and not x.is_contiguous()
