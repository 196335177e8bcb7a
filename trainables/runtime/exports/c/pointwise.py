"""Operators that compute every element on its own, or only move elements. They are collected into
one expression as long as nothing else reads what is between, and written as one loop."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from bitfront.trainables.runtime.exports.c.program import (
    Call,
    Pointwise,
    Program,
    Read,
    Value,
    in_memory,
    number,
    operator,
    write,
)

# Longer expressions are computed in parts.
MOST_READS = 8


def broadcast(value: Value, shape: Sequence[int]) -> Read:
    """A value as an operation on a larger shape reads it."""
    missing = len(shape) - len(value.shape)
    own = zip(value.shape, value.strides, strict=True)
    return Read(value, (*(0,) * missing, *(0 if n == 1 else step for n, step in own)))


def combined(call: Call, expression: str, arguments: Sequence[Any]) -> Pointwise:
    """An expression of arguments {0}, {1}, ..., which are nodes or numbers. What was not computed
    yet, and is read here only, becomes part of it."""
    program, shape = call.program, call.shape
    reads: list[Read] = []
    texts: list[str] = []
    for argument in arguments:
        if isinstance(argument, bool | int | float):
            texts.append(number(float(argument)))
            continue
        found = call.lazy(argument)
        alone = len(argument.users) == 1 and found.shape == shape
        if alone and isinstance(found, Pointwise) and len(reads) + len(found.reads) <= MOST_READS:
            texts.append(_renumbered(found, len(reads)))
            reads += found.reads
            continue
        value = in_memory(program, found)
        program.values[argument] = value
        if value.constant is not None and value.count == 1:
            texts.append(number(float(value.constant.flatten()[0])))
            continue
        texts.append(f"{{{len(reads)}}}")
        reads.append(broadcast(value, shape))
    return Pointwise(shape, f"({_filled(expression, texts)})", tuple(reads))


def _renumbered(found: Pointwise, first: int) -> str:
    return re.sub(r"\{(\d+)\}", lambda m: f"{{{int(m[1]) + first}}}", found.expression)


def _filled(expression: str, texts: Sequence[str]) -> str:
    return re.sub(r"\{(\d+)\}", lambda m: texts[int(m[1])], expression)


# --- operators ----------------------------------------------------------------------------------

# Functions of kernels.c that begin with `net_`, and of C.
UNARY = {
    "relu": "net_relu({0})",
    "neg": "-{0}",
    "abs": "fabsf({0})",
    "floor": "floorf({0})",
    "exp": "expf({0})",
    "sqrt": "sqrtf({0})",
    "rsqrt": "1.0f / sqrtf({0})",
    "tanh": "tanhf({0})",
    "sigmoid": "net_sigmoid({0})",
    "silu": "net_silu({0})",
    "hardsigmoid": "net_hardsigmoid({0})",
    "hardswish": "net_hardswish({0})",
    "relu6": "net_clamp({0}, 0.0f, 6.0f)",
}
BINARY = {
    "add.Tensor": "{0} + {1}",
    "sub.Tensor": "{0} - {1}",
    "mul.Tensor": "{0} * {1}",
    "div.Tensor": "{0} / {1}",
    "minimum.default": "fminf({0}, {1})",
    "maximum.default": "fmaxf({0}, {1})",
    "lt.Scalar": "{0} < {1} ? 1.0f : 0.0f",
    "gt.Scalar": "{0} > {1} ? 1.0f : 0.0f",
    "ge.Scalar": "{0} >= {1} ? 1.0f : 0.0f",
    "lt.Tensor": "{0} < {1} ? 1.0f : 0.0f",
    "gt.Tensor": "{0} > {1} ? 1.0f : 0.0f",
    "ge.Tensor": "{0} >= {1} ? 1.0f : 0.0f",
    "prelu.default": "net_prelu({0}, {1})",
}
# What returns its input, in the shape of the node.
SAME = (
    *("view", "reshape", "unsqueeze", "contiguous", "clone", "alias", "detach", "lift_fresh_copy"),
    "dropout",
)


def _declare() -> None:
    for name, expression in UNARY.items():

        def one(call: Call, expression: str = expression) -> Pointwise:
            return combined(call, expression, call.node.args[:1])

        operator(f"aten.{name}.default")(one)
    for name, expression in BINARY.items():

        def two(call: Call, expression: str = expression) -> Pointwise:
            if call.given.get("alpha", 1) != 1:
                raise call.refused("has a factor alpha")
            return combined(call, expression, call.node.args[:2])

        operator(f"aten.{name}")(two)
    for name in SAME:
        operator(f"aten.{name}.default")(same)


@operator("aten.flatten.using_ints", "aten.squeeze.dim", "aten.squeeze.dims")
def same(call: Call) -> Value:
    """The same elements in the shape of the node."""
    found = call.program.values[call.node.args[0]]
    value = in_memory(call.program, found)
    call.program.values[call.node.args[0]] = value
    return replace(
        value,
        shape=call.shape,
        constant=None if value.constant is None else value.constant.reshape(call.shape),
    )


_declare()


@operator("bitfront.sums.default")
def sums(call: Call) -> Value | Pointwise:
    """The sums themselves: C adds signs as whole numbers."""
    return call.program.values[call.node.args[0]]


@operator("bitfront.signs.default")
def signs(call: Call) -> Pointwise:
    """+1 where x >= t, else -1, where a layer has no kernel for bits."""
    x = call.program.values[call.node.args[0]]
    threshold = call.tensor("threshold")
    assert threshold is not None
    t = in_memory(call.program, call.program.values[call["threshold"]])
    value = in_memory(call.program, x)
    call.program.values[call.node.args[0]] = value
    reads = (Read(value, value.strides), broadcast(t, call.shape))
    return Pointwise(call.shape, "({0} >= {1} ? 1.0f : -1.0f)", reads)


@operator("aten.where.self")
def where(call: Call) -> Pointwise:
    """One or the other; conditions are numbers here."""
    return combined(call, "{0} != 0.0f ? {1} : {2}", call.node.args[:3])


@operator("aten.clamp.default", "aten.clamp_min.default", "aten.hardtanh.default")
def clamp(call: Call) -> Pointwise:
    """min and max with numbers."""
    low = call.given.get("min", call.given.get("min_val"))
    high = call.given.get("max", call.given.get("max_val"))
    low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    text = f"net_clamp({{0}}, {number(float(low))}, {number(float(high))})"
    return combined(call, text, call.node.args[:1])


@operator("aten.leaky_relu.default")
def leaky_relu(call: Call) -> Pointwise:
    """x, or a share of it below 0."""
    text = f"net_prelu({{0}}, {number(float(call['negative_slope']))})"
    return combined(call, text, call.node.args[:1])


@operator("aten.gelu.default")
def gelu(call: Call) -> Pointwise:
    """x P(X <= x) of a normal X, exact or by tanh."""
    name = "net_gelu" if call["approximate"] == "none" else "net_gelu_tanh"
    return combined(call, f"{name}({{0}})", call.node.args[:1])


@operator("aten._native_batch_norm_legit_no_training.default")
def batch_norm(call: Call) -> Pointwise:
    """x a + b with a = w / sqrt(var + eps), b = bias - mean a."""
    weight, bias = call.tensor("weight"), call.tensor("bias")
    mean, var = call.tensor("running_mean"), call.tensor("running_var")
    assert mean is not None
    assert var is not None
    a = torch.rsqrt(var + call["eps"])
    a = a if weight is None else a * weight
    b = -mean.double() * a.double()
    b = (b if bias is None else b + bias.double()).float()
    shape = (1, -1, *(1,) * (len(call.shape) - 2))
    found = combined(call, "{0}", call.node.args[:1])
    count = len(found.reads)
    more = [broadcast(call.program.constant(each.view(shape)), call.shape) for each in (a, b)]
    text = f"({found.expression} * {{{count}}} + {{{count + 1}}})"
    return Pointwise(call.shape, text, (*found.reads, *more))


@operator("aten.to.dtype", "aten._to_copy.default")
def to_floats(call: Call) -> Value:
    """Floats as floats."""
    if call["dtype"] not in (None, torch.float32):
        raise call.refused(f"makes {call['dtype']}")
    return same(call)


# --- operators that move elements ---------------------------------------------------------------


def moved(call: Call, strides: Sequence[int], offset: int = 0) -> Pointwise:
    """The elements of the first argument at other places."""
    value = call.value(next(iter(call.given)))
    call.program.values[call.node.args[0]] = value
    return Pointwise(call.shape, "{0}", (Read(value, tuple(strides), offset),))


@operator("aten.permute.default", "aten.transpose.int", "aten.t.default")
def permute(call: Call) -> Pointwise:
    """Dimensions in another order."""
    value = call.value(next(iter(call.given)))
    order = list(range(len(value.shape)))
    if "dims" in call.given:
        order = [d % len(order) for d in call["dims"]]
    else:
        a, b = (call["dim0"], call["dim1"]) if "dim0" in call.given else (0, 1)
        order[a], order[b] = order[b], order[a]
    return moved(call, [value.strides[d] for d in order])


@operator("aten.slice.Tensor")
def slice_(call: Call) -> Pointwise | Value:
    """Every so many elements of one dimension."""
    value = call.value("self")
    dim = call["dim"] % len(value.shape)
    begin = call["start"] or 0
    begin = min(begin + value.shape[dim] if begin < 0 else begin, value.shape[dim])
    if call.shape == value.shape:
        return same(call)
    strides = list(value.strides)
    strides[dim] *= call["step"]
    return moved(call, strides, begin * value.strides[dim])


@operator("aten.select.int")
def select(call: Call) -> Pointwise:
    """One of a dimension."""
    value = call.value("self")
    dim = call["dim"] % len(value.shape)
    index = call["index"] % value.shape[dim]
    strides = [s for d, s in enumerate(value.strides) if d != dim]
    return moved(call, strides, index * value.strides[dim])


@operator("aten.expand.default")
def expand(call: Call) -> Pointwise:
    """One element for many."""
    return moved(call, broadcast(call.value("self"), call.shape).strides)


@operator("aten.unbind.int", "aten.split.Tensor", "aten.chunk.default")
def parts(call: Call) -> Value:
    """Parts of one dimension, which `getitem` takes."""
    return call.value("self")


def part_of(program: Program, node: Any) -> Value | Pointwise:
    """What `getitem` takes of a call that returns several."""
    source, index = node.args
    target = str(source.target)
    if not target.startswith(("aten.unbind", "aten.split", "aten.chunk")):
        return program.values[source]
    value = in_memory(program, program.values[source])
    call = Call(program, source)
    dim = call["dim"] % len(value.shape)
    shapes = [tuple(int(n) for n in each.shape) for each in source.meta["val"]]
    strides = list(value.strides)
    before = index
    if target.startswith("aten.unbind"):
        del strides[dim]
    else:
        before = sum(shape[dim] for shape in shapes[:index])
    read = Read(value, tuple(strides), before * value.strides[dim])
    return Pointwise(shapes[index], "{0}", (read,))


@operator("aten.cat.default")
def cat(call: Call) -> Value:
    """Tensors behind each other."""
    program, out = call.program, call.program.new(call.shape)
    dim, at = call.given.get("dim", 0) % len(call.shape), 0
    for node in call["tensors"]:
        found = call.lazy(node)
        value = in_memory(program, found)
        program.values[node] = value
        moving = Pointwise(value.shape, "{0}", (Read(value, value.strides),))
        write(program, moving, Read(out, out.strides, at * out.strides[dim]))
        at += value.shape[dim]
    return out


@operator("aten.pad.default", "aten.constant_pad_nd.default")
def pad(call: Call) -> Value:
    """Zeros, or another number, around."""
    if call.given.get("mode", "constant") != "constant" or min(call["pad"]) < 0:
        raise call.refused("pads in another way than with a number")
    program, out, value = call.program, call.program.new(call.shape), call.value("self")
    filling = number(float(call["value"] or 0.0))
    write(program, Pointwise(call.shape, filling, ()), Read(out, out.strides))
    places = list(reversed(call["pad"][::2]))
    offset = sum(p * s for p, s in zip(reversed(places), reversed(out.strides), strict=False))
    moving = Pointwise(value.shape, "{0}", (Read(value, value.strides),))
    write(program, moving, Read(out, out.strides, offset))
    return out
