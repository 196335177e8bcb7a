"""Layers that follow each other as one job for the kernels: a step for the signs of a layer's input
and one for its sums, with all addresses and sizes, for inputs of one form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitfront.trainables.runtime.kernels import lookup, popcount
from bitfront.trainables.runtime.kernels.running import runner
from bitfront.trainables.runtime.kernels.steps import COUNTERS, FIELDS, LINE, Field, Head, Kind
from bitfront.trainables.runtime.layers import Finished, Packed, channels_last
from bitfront.trainables.runtime.machine import Kernel
from bitfront.trainables.runtime.threads import yields

# Vector operations that are worth a part of their own, and a thread of their own.
LEAST_PART, LEAST_THREAD = 500, 40_000
PARTS = 2


@dataclass(frozen=True)
class Form:
    """How a value lies in memory: images (n, height, width, channels), one after another."""

    images: tuple[int, int, int, int]
    shape: tuple[int, ...]
    """that of the tensor"""
    last: bool
    """whether torch takes it for a tensor whose channels come last"""

    @property
    def pixels(self) -> int:
        n, height, width, _ = self.images
        return n * height * width


def form_of(x: Tensor, dimensions: int) -> Form:
    """The form of a tensor for a layer whose inputs have so many dimensions."""
    shape = tuple(x.shape)
    if dimensions == 2:
        images = (1, x.numel() // max(1, shape[-1]), 1, shape[-1])
    else:
        if len(shape) not in (dimensions - 1, dimensions):
            raise RuntimeError(f"an input of shape {shape} for {dimensions} dimensions")
        n, c, *size = shape if len(shape) == dimensions else (1, *shape)
        height, width = [1, *size][-2:]
        images = (n, height, width, c)
    return Form(images, shape, channels_last(x))


def placed(x: Tensor, dimensions: int) -> Tensor:
    """The tensor as its form says, without a copy where it lies like that."""
    if dimensions == 2:
        return x.contiguous()
    x = x if x.dim() == dimensions else x[None]
    x = x.unsqueeze(2) if dimensions == 3 else x
    return x.permute(0, 2, 3, 1).contiguous()


def result(form: Form, dimensions: int) -> tuple[Tensor, Tensor]:
    """A new tensor of this form: as the kernel writes it, and as torch sees it. The second shows
    what is written to the first, unless its channels come first."""
    if dimensions == 2:
        made = torch.empty(form.shape)
        return made, made
    made = torch.empty(form.images)
    return made, made.permute(0, 3, 1, 2)


def seen(made: Tensor, form: Form, dimensions: int) -> Tensor:
    """The tensor for torch, after the kernel has written it."""
    if dimensions == 2:
        return made
    made = made if form.last else made.contiguous()
    made = made.squeeze(2) if dimensions == 3 else made
    return made if len(form.shape) == dimensions else made[0]


def form_after(layer: Finished, form: Form) -> Form:
    """The form of the outputs of a layer. Raises RuntimeError, as torch does, for inputs that it
    does not take."""
    n, height, width, channels = form.images
    if not isinstance(layer, Packed):
        if channels != layer.channels:
            raise RuntimeError(f"{channels} channels, not {layer.channels}")
        return form
    if channels != layer.inputs * layer.geometry.groups:
        wanted = layer.inputs * layer.geometry.groups
        raise RuntimeError(f"an input of {channels} channels for a layer of {wanted}")
    if layer.dimensions == 2:
        tokens = (*form.shape[:-1], layer.channels)
        return Form((1, height, 1, layer.channels), tokens, last=False)
    high, wide = layer.geometry.size(height, width)
    if min(high, wide) < 1:
        raise RuntimeError(f"images of {height} x {width} are smaller than the kernel")
    size = (high, wide)[-(layer.dimensions - 2) :]
    shape: tuple[int, ...] = (n, layer.channels, *size)
    if not layer.makes_batches:
        shape = shape[-len(form.shape) :]
    last = len(shape) == 4 and (layer.last or form.last)
    if last:
        made = torch.empty(shape, device="meta", memory_format=torch.channels_last)
        last = channels_last(made)
    return Form((n, high, wide, layer.channels), shape, last)


class Job:
    """Steps that are run together. Outputs and inputs of the whole are given with every call, what
    lies between is kept: a job is run by one caller at a time."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.rows: list[dict[Field, int]] = []
        self.slots: dict[int, list[tuple[int, Field]]] = defaultdict(list)
        """by value: where its address is written before a call"""
        self.kept: list[Any] = []
        self.work = 0
        self.looked_up = False
        self._free: dict[int, list[Any]] = defaultdict(list)

    def address(self, array: Any) -> int:
        """Where an array is, which lives as long as the job."""
        self.kept.append(array)
        return int(array.ctypes.data)

    def scratch(self, count: int) -> Any:
        """Room for so many floats, that of a value nobody reads any more if there is some."""
        if self._free[count]:
            return self._free[count].pop()
        made = np.empty(count, np.float32)
        self.kept.append(made)
        return made

    def give_back(self, room: Any) -> None:
        """Room that `scratch` gave, which may be used again by the steps that follow."""
        self._free[room.size].append(room)

    @property
    def bytes(self) -> int:
        """How much memory it keeps, weights of layers included."""
        return sum(array.nbytes for array in self.kept)

    def step(self, units: int, cost: int, values: dict[Field, int]) -> None:
        """One more step, of units that cost so many vector operations each."""
        parts = PARTS * self.threads
        share = max(-(-units // parts), -(-LEAST_PART // max(1, cost)))
        self.work += units * cost
        self.rows.append(values | {Field.UNITS: units, Field.SHARE: share})

    def finish(self) -> None:
        """Make of the steps what kernels read."""
        self.table = np.zeros((len(self.rows), FIELDS), np.int64)
        for row, values in zip(self.table, self.rows, strict=True):
            for field, value in values.items():
                row[field] = value
        self.threads = max(1, min(self.threads, self.work // LEAST_THREAD))
        lines = 2 + len(self.rows) * (1 + self.threads)
        self.counters = np.zeros(lines * LINE, np.int64)
        # A counter has a cache line of its own.
        skip = -self.counters.ctypes.data % (8 * LINE) // 8
        self.head = np.zeros(len(Head), np.int64)
        self.head[Head.COUNT] = len(self.rows)
        self.head[Head.STEPS] = self.table.ctypes.data
        if self.threads > 1:
            self.head[COUNTERS] = self.counters.ctypes.data + 8 * skip
        self.head[Head.YIELD] = yields()
        self.head[Head.THREADS] = self.threads
        self.place = int(self.head.ctypes.data)
        self.function = runner(self.looked_up)

    def add(self, layer: Finished, form: Form, x: Any, residual: Any, out: Any) -> None:
        """The steps of a layer on inputs of this form. `x`, `residual` and `out` are arrays, or the
        numbers of values whose addresses are given with every call."""
        after = form_after(layer, form)
        end = {
            Field.PIXELS: after.pixels,
            Field.CHANNELS: layer.channels,
            **self._program(layer),
        }
        floats = {Field.RESIDUAL: residual, Field.OUT: out}
        if isinstance(layer, Packed):
            packed = self._pack(layer, form, x)
            self._sum(layer, form, after, packed, end)
        else:
            cost = -(-layer.channels // 16) * 2
            self.step(after.pixels, cost, {Field.KIND: Kind.FLOATS} | end)
            floats[Field.X] = x
        self._point(len(self.rows) - 1, floats)

    def _point(self, row: int, floats: dict[Field, Any]) -> None:
        for field, value in floats.items():
            if isinstance(value, int):
                self.slots[value].append((row, field))
            elif value is not None:
                self.rows[row][field] = int(value.ctypes.data)

    def _program(self, layer: Finished) -> dict[Field, int]:
        rows, vectors = layer.program.arrays()
        together = layer.program.together()
        return {
            Field.TOGETHER: 0 if together is None else self.address(together),
            Field.PROGRAM: self.address(rows),
            Field.OPERATIONS: len(rows),
            Field.CONSTANTS: self.address(vectors),
        }

    def _pack(self, layer: Packed, form: Form, x: Any) -> Any:
        """The step that packs the inputs; returns where they go, border included."""
        n, height, width, channels = form.images
        left, right, top, bottom = layer.geometry.padding
        looked_up = layer.kernel is Kernel.LOOKUP
        self.looked_up |= looked_up
        groups = layer.geometry.groups
        kind: Any
        if looked_up:
            each, kind, border = channels // 4 // groups, np.uint8, lookup.PADDING
        else:
            each, kind, border = popcount.words_for(layer.inputs), np.uint32, 0
        high, wide = height + top + bottom, width + left + right
        packed = np.full((n, max(1, high), max(1, wide), groups * each), border, kind)
        image, line, pixel = packed.strides[:3]
        values = {
            Field.KIND: Kind.PACK_FOURS if looked_up else Kind.PACK_WORDS,
            Field.SHIFT: self.address(layer.least),
            Field.PACKED: self.address(packed),
            Field.HEIGHT: height,
            Field.WIDTH: width,
            Field.IN_CHANNELS: channels,
            Field.GROUPS: groups,
            Field.IMAGE_BYTES: image,
            Field.LINE_BYTES: line,
            Field.BORDER_BYTES: top * line + left * pixel,
            Field.GROUP_BYTES: each * packed.itemsize,
        }
        self.step(n * height, max(1, width * channels // 16), values)
        self._point(len(self.rows) - 1, {Field.X: x})
        return packed

    def _sum(
        self, layer: Packed, form: Form, after: Form, packed: Any, end: dict[Field, int]
    ) -> None:
        geometry = layer.geometry
        high = 4 if after.pixels >= 4 else 1
        blocks, steps = layer.weights.shape[1:3]
        classes, rows = _classes(layer, form, after)
        values = {
            Field.KIND: Kind.SUM_WORDS,
            Field.PACKED: int(packed.ctypes.data),
            Field.GROUPS: geometry.groups,
            Field.GROUP_BYTES: packed.strides[2] // geometry.groups,
            Field.STEPS: steps,
            Field.WEIGHTS: self.address(layer.weights),
            Field.BLOCKS: blocks,
            Field.TILE: 100 * high + layer.vectors,
        }
        if layer.kernel is Kernel.LOOKUP:
            taps, length = _runs(layer, packed)
            values |= {
                Field.KIND: Kind.SUM_FOURS,
                Field.TABLE: self.address(lookup.table()),
                Field.LENGTH: length,
            }
        else:
            taps = _taps(layer, packed)
            bases = popcount.bases(layer.inputs, layer.ones, rows)
            values[Field.BASES] = self.address(bases)
            classes = classes * bases.strides[0]
        places = np.stack([_places(layer, after, packed), classes.reshape(-1)], 1)
        values[Field.PLACES] = self.address(np.ascontiguousarray(places.astype(np.int64)))
        values[Field.TAPS] = self.address(taps)
        tiles, blocks = -(-after.pixels // high), blocks * geometry.groups
        cost = steps * high * layer.vectors
        # Threads take pixels, so that what they read next is what they wrote; of few, outputs.
        across = tiles >= 2 * PARTS * self.threads
        values[Field.ACROSS] = int(across)
        if across:
            self.step(tiles, cost * blocks, values | end)
        else:
            self.step(tiles * blocks, cost, values | end)


def _places(layer: Packed, after: Form, packed: Any) -> Any:
    """Where in the packed inputs every output pixel begins to read."""
    image, line, column = np.indices(after.images[:3], sparse=True)
    down, across = layer.geometry.stride
    strides = packed.strides
    places = image * strides[0] + line * down * strides[1] + column * across * strides[2]
    return places.reshape(-1)


def _taps(layer: Packed, packed: Any) -> Any:
    """Where every word of a pixel's inputs is, from where it begins to read."""
    rows, columns = layer.geometry.kernel
    apart, beside = layer.geometry.dilation
    words = packed.shape[3] // layer.geometry.groups
    row, column, word = np.indices((rows, columns, words), sparse=True)
    strides = packed.strides
    places = row * apart * strides[1] + column * beside * strides[2] + word * strides[3]
    return np.ascontiguousarray(places.reshape(-1).astype(np.int64))


def _runs(layer: Packed, packed: Any) -> tuple[Any, int]:
    """Where the runs of bytes that follow each other begin, and how long they are. Where columns
    follow each other in memory, a row of the kernel is one run."""
    rows, columns = layer.geometry.kernel
    apart, beside = layer.geometry.dilation
    _, line, pixel, _ = packed.strides
    if beside == 1 and layer.geometry.groups == 1:
        return np.arange(rows, dtype=np.int64) * apart * line, columns * pixel
    row, column = np.indices((rows, columns), sparse=True)
    places = row * apart * line + column * beside * pixel
    found = np.ascontiguousarray(places.reshape(-1).astype(np.int64))
    return found, pixel // layer.geometry.groups


def _classes(layer: Packed, form: Form, after: Form) -> tuple[Any, Any]:
    """Which taps of a pixel are inside of the image: the class of every pixel (n, height, width),
    and the taps (classes, rows, columns) of every class."""
    geometry = layer.geometry
    left, _, top, _ = geometry.padding
    places: list[Any] = []
    inside: list[Any] = []
    for axis, before in ((0, top), (1, left)):
        size, count = form.images[1 + axis], after.images[1 + axis]
        begin = np.arange(count) * geometry.stride[axis] - before
        taps = begin[:, None] + np.arange(geometry.kernel[axis]) * geometry.dilation[axis]
        fits = (taps >= 0) & (taps < size)
        kinds, place = np.unique(fits, axis=0, return_inverse=True)
        places.append(place.reshape(-1))
        inside.append(kinds)
    rows, columns = inside
    taps = rows[:, None, :, None] & columns[None, :, None, :]
    classes = places[0][:, None] * len(columns) + places[1]
    whole = np.broadcast_to(classes, after.images[:3])
    return whole, taps.reshape(-1, *geometry.kernel)


def values_of(links: Sequence[Any], inputs: int) -> dict[int, int]:
    """By value, the last link that reads it."""
    found: dict[int, int] = {}
    for number, link in enumerate(links):
        for value in (link.source, link.residual):
            if value is not None and value >= inputs:
                found[value] = number
    return found
