"""Weights that are signs times a scale, as they are in graphs of ONNX: one bit each, unpacked by
standard operators, which runtimes compute once, when they load the file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Smaller weights are no smaller with their bits and the operators around them.
FEWEST = 256
SHIFTS, ONE, TWO = "bitfront.shifts", "bitfront.one", "bitfront.two"
ONES = "bitfront.ones"


@dataclass(frozen=True)
class Signs:
    """w = signs * scale, exactly."""

    signs: Array
    """+1 or -1; 0 where the weight was pruned"""
    scale: Array | None
    """of the shape in which it is multiplied; None: 1 everywhere"""

    @property
    def pruned(self) -> bool:
        """Whether there are zeros among the signs."""
        return bool((self.signs == 0).any())


def split(weight: Array) -> Signs | None:
    """The signs and scales of a weight: one scale in all, or one per output. None: it is not of
    that form, or too small to gain."""
    if weight.dtype != np.float32 or weight.ndim < 2 or weight.size < FEWEST:
        return None
    size = np.abs(weight)
    axes = tuple(range(weight.ndim))
    # The outputs of most layers come first, those of transposed weights second.
    for kept in ((), (0,), (1,)):
        others = tuple(axis for axis in axes if axis not in kept)
        scale = size.max(axis=others, keepdims=True)
        if weight.size < 4 * scale.size or not np.isfinite(scale).all():
            continue
        if bool(((size == scale) | (size == 0)).all()) and bool(scale.any()):
            signs = np.sign(weight)
            plain = bool((scale == 1).all())
            return Signs(signs, None if plain else scale.astype(np.float32))
    return None


def pack(model: Any) -> int:
    """Store every weight of a model that is signs times scales as bits, in place; returns how many
    weights there are of these."""
    from onnx import numpy_helper

    graph, count = model.graph, 0
    kept: list[Any] = []
    nodes: list[Any] = []
    tensors: list[Any] = []
    for tensor in graph.initializer:
        found = split(np.asarray(numpy_helper.to_array(tensor)))
        if found is None:
            kept.append(tensor)
            continue
        count += found.signs.size
        _add(tensor.name, found, nodes, tensors)
    if count:
        shared = {
            SHIFTS: np.arange(7, -1, -1, dtype=np.uint8),
            ONE: np.ones((), np.uint8),
            TWO: np.float32(2),
            ONES: np.float32(1),
        }
        tensors += [numpy_helper.from_array(np.asarray(v), k) for k, v in shared.items()]
    before = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend([*kept, *tensors])
    graph.node.extend([*nodes, *before])
    return count


def _add(name: str, found: Signs, nodes: list[Any], tensors: list[Any]) -> None:
    """The nodes and constants that make the weight of this name."""
    from onnx import helper, numpy_helper

    def constant(part: str, value: Array) -> str:
        tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), f"{name}.{part}"))
        return f"{name}.{part}"

    def node(operator: str, inputs: list[str], part: str, **given: Any) -> str:
        # Without a name of its own, which would take more bytes than many a weight.
        nodes.append(helper.make_node(operator, inputs, [f"{name}.{part}"], **given))
        return f"{name}.{part}"

    shape = constant("shape", np.array(found.signs.shape, np.int64))

    def unpacked(part: str, ones: Array) -> str:
        """Eight numbers 0 or 1 of every byte, as many as there are weights, in their shape."""
        packed = constant(part, np.packbits(ones).reshape(-1, 1))
        last = node("BitShift", [packed, SHIFTS], f"{part}.shifted", direction="RIGHT")
        last = node("BitwiseAnd", [last, ONE], f"{part}.one")
        last = node("Cast", [last], f"{part}.float", to=1)
        if found.signs.size % 8:
            flat = constant(f"{part}.flat", np.array([-1], np.int64))
            last = node("Reshape", [last, flat], f"{part}.all")
            begin = constant(f"{part}.begin", np.array([0], np.int64))
            end = constant(f"{part}.end", np.array([math.prod(found.signs.shape)], np.int64))
            last = node("Slice", [last, begin, end], f"{part}.cut")
        return node("Reshape", [last, shape], f"{part}.shaped")

    last = node("Mul", [unpacked("bits", found.signs.reshape(-1) > 0), TWO], "doubled")
    last = node("Sub", [last, ONES], "signs")
    if found.pruned:
        last = node("Mul", [last, unpacked("mask", found.signs.reshape(-1) != 0)], "kept")
    if found.scale is not None:
        last = node("Mul", [last, constant("scale", found.scale)], "scaled")
    nodes[-1].output[0] = name
