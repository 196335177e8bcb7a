"""Layers with weights: on packed bits where inputs and weights are signs, with one bit per weight
where weights are signs and inputs floats, else with floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitfront.trainables.runtime.exports import one_bit
from bitfront.trainables.runtime.exports.c.program import Call, Program, Value, in_memory, operator
from bitfront.trainables.runtime.exports.form import SIGNS

# Bits of a word, and the C type of such words.
WORDS = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t"}


@operator(
    "aten.conv1d.default", "aten.conv2d.default", "aten.conv1d.padding", "aten.conv2d.padding"
)
def convolution(call: Call) -> Value:
    """A convolution in one or two dimensions."""
    weight = call.tensor("weight")
    assert weight is not None
    flat = weight.dim() == 3
    out = call.program.new(call.shape)
    x = _input(call)
    sizes = {name: _two(call[name], flat) for name in ("stride", "dilation")}
    pads = _padding(call, weight, flat)
    shape = (*x.shape[1:],) if not flat else (x.shape[1], 1, x.shape[2])
    after = (*out.shape[1:],) if not flat else (out.shape[1], 1, out.shape[2])
    kernel = (1, weight.shape[2]) if flat else tuple(weight.shape[2:])
    fields = (*shape, *after, *kernel, *sizes["stride"], *sizes["dilation"], *pads, call["groups"])
    whole = weight if not flat else weight.unsqueeze(2)
    _call(call, x, whole, out, "{" + ", ".join(map(str, fields)) + "}")
    return out


@operator("aten.linear.default")
def linear(call: Call) -> Value:
    """A linear layer, which is a 1x1 convolution of an image whose channels come last."""
    weight = call.tensor("weight")
    assert weight is not None
    out, x = call.program.new(call.shape), _input(call, "input")
    rows = x.count // x.shape[-1]
    if rows == 1:
        fields = (x.shape[-1], 1, 1, out.shape[-1], 1, 1, *(1,) * 6, 0, 0, 1)
        _call(call, x, weight[:, :, None, None], out, "{" + ", ".join(map(str, fields)) + "}")
        return out
    fields = (x.shape[-1], 1, 1, out.shape[-1], 1, 1, *(1,) * 6, 0, 0, 1)
    _call(call, x, weight[:, :, None, None], out, "{" + ", ".join(map(str, fields)) + "}", rows)
    return out


def _input(call: Call, name: str = "input") -> Value:
    """The input in memory: before its signs are taken, where bits are made of it."""
    node = call[name]
    if _on_bits(call, name):
        node = node.args[0]
    found = in_memory(call.program, call.lazy(node))
    call.program.values[node] = found
    return found


def _on_bits(call: Call, name: str = "input") -> bool:
    weight = call.tensor("weight")
    assert weight is not None
    return call[name].target is SIGNS and bool((weight.abs() == 1).all())


def _two(values: Any, flat: bool) -> tuple[int, int]:
    values = list(values)
    return (1, values[0]) if flat else (values[0], values[-1])


def _padding(call: Call, weight: Tensor, flat: bool) -> tuple[int, int]:
    """Rows above and columns to the left."""
    given = call["padding"]
    if given == "valid":
        return 0, 0
    if given == "same":
        spread = _two(call["dilation"], flat)
        kernel = (1, weight.shape[2]) if flat else weight.shape[2:]
        rows, columns = (d * (k - 1) // 2 for d, k in zip(spread, kernel, strict=True))
        return rows, columns
    return (0, given[0]) if flat else (given[0], given[-1])


def _call(
    call: Call, x: Value, weight: Tensor, out: Value, shape: str, rows: int | None = None
) -> None:
    """The call of the kernel that fits. `rows`: so many inputs follow each other."""
    program = call.program
    bias = call.tensor("bias")
    found = one_bit.split(weight.numpy())
    label = f"(net_shape){shape}"
    if _on_bits(call):
        text = _on_words(program, call, weight, label)
    elif found is not None and _by_outputs(found, weight):
        bits = program.array("uint8_t", weight, _byte_texts)
        scale = torch.ones(len(weight)) if found.scale is None else torch.from_numpy(found.scale)
        scales = program.floats(scale.flatten().expand(len(weight)).contiguous())
        program.binary += weight.numel()
        kept = "0"
        if found.pruned:
            kept = program.array("uint8_t", weight.abs(), _byte_texts)
        text = f"net_signed(&{label}, @x, {bits}, {kept}, {scales}, @y)"
    else:
        text = f"net_convolve(&{label}, @x, {program.floats(weight)}, @y)"
    source, target = program.address(x), out.name
    loop = ""
    if rows is not None:
        loop = f"for (int r = 0; r < {rows}; r++) "
        source = f"{source} + r * {x.shape[-1]}"
        target = f"{target} + r * {out.shape[-1]}"
    program.step(loop + text.replace("@x", source).replace("@y", target) + ";", [x], out)
    if bias is not None:
        inner = 1 if rows is not None else out.count // bias.numel()
        add = f"net_bias({out.name}, {program.floats(bias)}, {rows or 1}, {bias.numel()}, {inner});"
        program.step(add, [out], out)


def _by_outputs(found: one_bit.Signs, weight: Tensor) -> bool:
    return found.scale is None or found.scale.size == 1 or found.scale.shape[0] == len(weight)


def _byte_texts(weight: Tensor) -> list[str]:
    return [str(byte) for byte in np.packbits((weight.flatten() > 0).numpy())]


def _on_words(program: Program, call: Call, weight: Tensor, label: str) -> str:
    """The call for signs times signs: channels of a group as bits of words."""
    inputs = weight.shape[1]
    width = next((bits for bits in WORDS if inputs <= bits), 32)
    per_tap = -(-inputs // width)

    def texts(tensor: Tensor) -> list[str]:
        ones = (tensor > 0).numpy().transpose(0, 2, 3, 1)
        padded = np.zeros((*ones.shape[:3], per_tap * width), np.uint64)
        padded[..., :inputs] = ones
        places = np.uint64(1) << np.arange(width, dtype=np.uint64)
        words = (padded.reshape(*ones.shape[:3], per_tap, width) * places).sum(-1)
        return [hex(word) for word in words.flatten()]

    words = program.array(WORDS[width], weight, texts)
    program.binary += weight.numel()
    threshold = call.program.values[call[_name(call)].args[1]]
    assert isinstance(threshold, Value)
    assert threshold.constant is not None
    groups = call.given.get("groups", 1)
    whole = threshold.constant.flatten().expand(inputs * groups).contiguous()
    image = call.program.values[call[_name(call)].args[0]].shape
    pixels = 1 if call.node.target is torch.ops.aten.linear.default else int(np.prod(image[2:]))
    program.bits = max(program.bits, -(-pixels * groups * per_tap * width // 32))
    name = f"net_binary_{width}"
    return f"{name}(&{label}, @x, {program.floats(whole)}, {words}, @y)"


def _name(call: Call) -> str:
    return "input" if "input" in call.given else "self"
