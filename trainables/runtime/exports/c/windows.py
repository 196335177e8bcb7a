"""Operators that combine many elements: pools, means, norms of layers, softmax and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from bitfront.trainables.runtime.exports.c.pointwise import broadcast
from bitfront.trainables.runtime.exports.c.program import (
    Call,
    Pointwise,
    Read,
    Value,
    number,
    operator,
)


@operator("aten.max_pool2d.default", "aten.avg_pool2d.default")
def pool(call: Call) -> Value:
    """The largest element or the mean of windows."""
    x = call.value("self")
    out = call.program.new(call.shape)
    kernel = _two(call["kernel_size"])
    stride = _two(call["stride"]) if call["stride"] else kernel
    dilation = _two(call.given.get("dilation", [1]))
    if call.given.get("divisor_override") is not None:
        raise call.refused("has a divisor of its own")
    # What the mean counts as its number of elements: zeros of the padding, or not.
    counted = int(bool(call.given.get("count_include_pad", True)))
    largest = "max" in str(call.node.target)
    pads = _two(call["padding"])
    fields = (*_image(call, x), *out.shape[-2:], *kernel, *stride, *dilation, *pads)
    name = "net_max_pool" if largest else "net_mean_pool"
    more = "" if largest else f", {counted}"
    text = (
        f"{name}((const int[]){{{_listed(fields)}}}, {call.program.address(x)}, {out.name}{more});"
    )
    call.program.step(text, [x], out)
    return out


@operator("aten.adaptive_avg_pool2d.default")
def adaptive_pool(call: Call) -> Value:
    """The mean of as many windows as there are outputs."""
    x = call.value("self")
    out = call.program.new(call.shape)
    fields = (*_image(call, x), *out.shape[-2:])
    address = call.program.address(x)
    text = f"net_adaptive_pool((const int[]){{{_listed(fields)}}}, {address}, {out.name});"
    call.program.step(text, [x], out)
    return out


@operator("aten.mean.dim", "aten.sum.dim_IntList")
def mean(call: Call) -> Value:
    """The mean or the sum over neighbouring dimensions."""
    x = call.value("self")
    out = call.program.new(call.shape)
    count = len(x.shape)
    dims = sorted(d % count for d in (call["dim"] or range(count)))
    if dims != list(range(dims[0], dims[-1] + 1)):
        raise call.refused("reduces dimensions that are not neighbours")
    outer = math.prod(x.shape[: dims[0]])
    middle = math.prod(x.shape[d] for d in dims)
    inner = math.prod(x.shape[dims[-1] + 1 :])
    share = f"1.0f / {middle}" if "mean" in str(call.node.target) else "1.0f"
    address = call.program.address(x)
    text = f"net_mean({address}, {outer}, {middle}, {inner}, {share}, {out.name});"
    call.program.step(text, [x], out)
    return out


@operator("aten.layer_norm.default")
def layer_norm(call: Call) -> Value | Pointwise:
    """(x - mean) / sqrt(var + eps) over the last dimensions, times weight plus bias."""
    return _norm(call, math.prod(call["normalized_shape"]))


@operator("aten.group_norm.default", "aten.instance_norm.default")
def group_norm(call: Call) -> Value | Pointwise:
    """The same over the elements of each group of channels, or of each channel; weight and bias are
    per channel."""
    if not call.given.get("use_input_stats", True):
        raise call.refused("uses running statistics")
    _, channels, *sizes = call.shape
    count = channels // call.given.get("num_groups", channels) * math.prod(sizes)
    return _norm(call, count, (-1, *(1,) * len(sizes)))


def _norm(call: Call, count: int, shape: Sequence[int] | None = None) -> Value | Pointwise:
    """Every `count` elements that follow each other normalised, then times weight plus bias, which
    are read in this shape."""
    x = call.value("input")
    program, out = call.program, call.program.new(call.shape)
    text = f"net_norm({program.address(x)}, {x.count // count}, {count}, "
    program.step(text + f"{number(float(call['eps']))}, {out.name});", [x], out)
    weight, bias = call.tensor("weight"), call.tensor("bias")
    if weight is None:
        return out
    given = (weight, torch.zeros_like(weight) if bias is None else bias)
    a, b = (program.constant(each if shape is None else each.view(shape)) for each in given)
    reads = (Read(out, out.strides), broadcast(a, call.shape), broadcast(b, call.shape))
    return Pointwise(call.shape, "({0} * {1} + {2})", reads)


@operator("aten.softmax.int", "aten._softmax.default")
def softmax(call: Call) -> Value:
    """exp(x) over its sum along the last dimension."""
    x = call.value("self")
    if call["dim"] % len(x.shape) != len(x.shape) - 1:
        raise call.refused("is along another dimension than the last")
    out = call.program.new(call.shape)
    size = x.shape[-1]
    address = call.program.address(x)
    call.program.step(f"net_softmax({address}, {x.count // size}, {size}, {out.name});", [x], out)
    return out


@operator("aten.scaled_dot_product_attention.default")
def attention(call: Call) -> Value:
    """softmax(q k^T / sqrt(d)) v for every head."""
    if call["attn_mask"] is not None or call["is_causal"] or call.given.get("enable_gqa"):
        raise call.refused("has a mask")
    q, k, v = (call.value(name) for name in ("query", "key", "value"))
    program, out = call.program, call.program.new(call.shape)
    length, width = q.shape[-2:]
    others, last = v.shape[-2:]
    scores = program.new((others,))
    scale = call["scale"] if call["scale"] is not None else 1 / math.sqrt(width)
    heads = math.prod(q.shape[:-2])
    if k.count != heads * others * width:
        raise call.refused("shares heads")
    sizes = f"{heads}, {length}, {others}, {width}, {last}, {number(float(scale))}"
    names = ", ".join(program.address(each) for each in (q, k, v))
    text = f"net_attention({names}, {sizes}, {scores.name}, {out.name});"
    program.step(text, [q, k, v, scores], out)
    return out


@operator("aten.matmul.default", "aten.bmm.default")
def matmul(call: Call) -> Value:
    """Products of matrices, one after another."""
    a, b = (call.value(name) for name in ([*call.given][:2]))
    if a.shape[:-2] != b.shape[:-2] or len(a.shape) < 2:
        raise call.refused("multiplies matrices of several shapes")
    out = call.program.new(call.shape)
    (m, k), n = a.shape[-2:], b.shape[-1]
    names = ", ".join(call.program.address(each) for each in (a, b))
    text = f"net_matmul({names}, {math.prod(a.shape[:-2])}, {m}, {k}, {n}, {out.name});"
    call.program.step(text, [a, b], out)
    return out


def _two(values: Any) -> tuple[int, int]:
    values = list(values) if isinstance(values, list | tuple) else [values]
    return values[0], values[-1]


def _image(call: Call, x: Value) -> tuple[int, int, int]:
    if len(x.shape) != 4:
        raise call.refused("takes no images")
    return x.shape[1], x.shape[2], x.shape[3]


def _listed(fields: Any) -> str:
    return ", ".join(map(str, fields))
