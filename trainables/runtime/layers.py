"""One binary layer on packed bits: its geometry, its weights as a kernel reads them, its call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfront.trainables.runtime.kernels import lookup, popcount
from bitfront.trainables.runtime.kernels.outputs import Operation
from bitfront.trainables.runtime.machine import has_lookup
from bitfront.trainables.runtime.threads import in_parts
from bitfront.trainables.runtime.thresholds import thresholds
from bitfront.trainables.structure.kinds import is_convolution, outputs_of

# The sums of the kernels are 16 bits wide.
LARGEST_SUM = 2**16 - 1
FEWEST_INPUTS = 8
# The look-up kernel by pixels and vectors of outputs of its tiles.
TILES = {
    (4, 2): lookup.convolve_4_2,
    (4, 1): lookup.convolve_4_1,
    (1, 2): lookup.convolve_1_2,
    (1, 1): lookup.convolve_1_1,
}
# The order of operations that the look-up kernel computes at once; what is missing does nothing.
AT_ONCE = {
    Operation.MULTIPLY: (1.0,),
    Operation.ADD: (0.0,),
    Operation.LINEAR: (1.0, 0.0),
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
    if inputs > LARGEST_SUM:
        return f"{inputs} inputs per output: sums are 16 bits wide"
    if not bool((weight.abs() == 1).all()):
        return "pruned weights"
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

    def at_once(self) -> NDArray[np.float32] | None:
        """The vectors of all operations of `AT_ONCE`; None where the program has others, or has
        them in another order."""
        order = list(AT_ONCE)
        codes = [Operation(code) for code, _, _ in self.rows]
        places = [order.index(code) if code in order else -1 for code in codes]
        if -1 in places or sorted(set(places)) != places:
            return None
        made: list[Any] = []
        for operation, neutral in AT_ONCE.items():
            if operation in codes:
                _, first, _ = self.rows[codes.index(operation)]
                made += self.vectors[first : first + len(neutral)]
            else:
                made += [np.full(self.channels, value) for value in neutral]
        return np.stack(made).astype(np.float32)


class PackedLayer(nn.Module):
    """A binary layer that computes on bits; called with the float input of the layer it is made
    from, it returns what that layer does, bit for bit."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.geometry = Geometry.of(layer)
        self.channels = outputs_of(layer)
        self.linear = isinstance(layer, nn.Linear)
        self.last = _channels_last(layer.weight)  # type: ignore[arg-type]
        self.dimensions = 2 if self.linear else layer.weight.dim()  # type: ignore[operator]
        self.shift = thresholds(layer)
        signs: Any = layer.weight.detach().numpy()  # type: ignore[operator]
        signs = signs.reshape(*signs.shape[:2], *self.geometry.kernel)
        self.inputs = signs.shape[1]
        self.program = Program(self.channels)
        if layer.output_scale is not None:
            self.program.add(Operation.MULTIPLY, layer.output_scale)  # type: ignore[arg-type]
        if layer.bias is not None:
            self.program.add(Operation.ADD, layer.bias)  # type: ignore[arg-type]
        self.looked_up = has_lookup() and self.inputs % 4 == 0
        self.lanes = 2 if self.channels // self.geometry.groups > lookup.LANES else 1
        groups = self.geometry.groups
        self.weights: Any = (
            lookup.packed_weights(signs, groups, lookup.LANES * self.lanes)
            if self.looked_up
            else popcount.packed_weights(signs, groups)
        )
        self.table = lookup.table()
        self.ready()
        self._local = threading.local()

    def ready(self) -> None:
        """Take over what was added to the program."""
        self.rows, self.vectors = self.program.arrays()
        together = self.program.at_once()
        whole = self.channels // self.geometry.groups % 8 == 0
        if self.looked_up and whole and together is not None:
            self.rows, self.vectors = self.rows[:0], together
        elif len(self.vectors) == lookup.AT_ONCE:
            # One more, which no operation reads: the kernel tells the two by their number.
            self.vectors = np.concatenate([self.vectors, self.vectors[:1]])

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """The outputs; `residual`: what a shortcut brings, of their shape."""
        last = self.linear or self.last or _channels_last(x)
        images, shape = self._images(x)
        height, width = self.geometry.size(*images.shape[1:3])
        out = np.empty((len(images), height, width, self.channels), np.float32)
        brought = out[:0] if residual is None else self._images(residual)[0]
        if out.size:
            self._run(images, brought, out)
        found = torch.from_numpy(out)
        if self.linear:
            return found.view(*shape[:-1], self.channels)
        found = found.permute(0, 3, 1, 2)
        found = found if last else found.contiguous()
        found = found.squeeze(2) if self.dimensions == 3 else found
        return found if len(shape) == self.dimensions else found[0]

    def _images(self, x: Tensor) -> tuple[NDArray[np.float32], torch.Size]:
        """The input as images (n, height, width, channels), and its shape."""
        shape = x.shape
        if self.linear:
            flat = x.reshape(1, 1, -1, shape[-1])
            return flat.contiguous().detach().numpy(), shape
        if x.dim() < self.dimensions:
            x = x[None]
        if self.dimensions == 3:
            x = x.unsqueeze(2)
        return x.detach().permute(0, 2, 3, 1).contiguous().numpy(), shape

    def _run(self, x: Any, brought: Any, out: Any) -> None:
        pixels = out.shape[0] * out.shape[1] * out.shape[2]
        left, _, top, _ = self.geometry.padding
        rest = (self.rows, self.vectors, brought, out)
        packed, offsets = self._packed(x, out)
        if self.looked_up:
            lookup.pack_inputs(x, self.shift, packed, top, left)
            tile = 4 if pixels >= 4 else 1
            run = TILES[tile, self.lanes]
            first = (packed, offsets, self.weights, self.table, self._kernel(packed))
            in_parts(-(-pixels // tile), lambda a, b: run(*first, *rest, a, b))
        else:
            popcount.pack_inputs(x, self.shift, packed, 8 * packed.itemsize)
            taps = (packed, self.weights, self.geometry.shape, (top, left), self.inputs)
            portable: Any = popcount.convolve
            in_parts(pixels, lambda a, b: portable(*taps, *rest, a, b))

    def _kernel(self, packed: Any) -> tuple[int, ...]:
        """How the look-up kernel goes through `packed`. Where columns follow each other in memory,
        a row of the kernel is one run of bytes."""
        rows, columns = self.geometry.kernel
        apart, beside = self.geometry.dilation
        groups, bytes_ = self.geometry.groups, packed.shape[3]
        below = apart * packed.shape[2] * bytes_
        if beside == 1 and groups == 1:
            return rows, below, 1, columns * bytes_, 0, groups
        return rows, below, columns, bytes_ // groups, beside * bytes_, groups

    def _packed(self, x: Any, out: Any) -> tuple[Any, Any]:
        """Where the signs of these inputs go, and where in it each output begins to read; one array
        per thread that calls. Its border, if it has one, is written once."""
        kept: Any = getattr(self._local, "packed", None)
        if kept is None or kept[0] != x.shape:
            kept = self._local.packed = (x.shape, *self._new(x, out))
        return kept[1], kept[2]

    def _new(self, x: Any, out: Any) -> tuple[Any, Any]:
        n, height, width, channels = x.shape
        left, right, top, bottom = self.geometry.padding
        if not self.looked_up:
            words = (n, height, width, self.geometry.groups, self.weights.shape[2])
            return np.zeros(words, self.weights.dtype), None
        shape = (n, height + top + bottom, width + left + right, channels // 4)
        packed = np.full(shape, lookup.PADDING, np.uint8)
        image, line, column = np.indices(out.shape[:3])
        down, across = self.geometry.stride
        places = (image * shape[1] + line * down) * shape[2] + column * across
        return packed, np.ascontiguousarray(places.reshape(-1) * shape[3])


def _channels_last(x: Tensor) -> bool:
    """Whether torch takes a tensor of images for one whose channels come last."""
    fits = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return fits and not x.is_contiguous()
