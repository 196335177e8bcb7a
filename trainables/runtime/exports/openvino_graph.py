"""Graphs of OpenVINO: signs and what multiplies them as its BinaryConvolution, weights as bits.

What was found wrong in OpenVINO 2026.4 (every layer is tried here, whatever the version): numbers
of inputs that are no multiple of 8, and strides from 3 on. A sign is FakeQuantize(x, t, t, 0, 1)
with t just below the threshold, since it asks x > t."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.runtime.exports import one_bit
from bitfront.trainables.runtime.exports.description import Description
from bitfront.trainables.runtime.exports.form import LARGEST_SUM, layer_of

# Whoever lists the formats imports this module, with the extra or without it.
if find_spec("openvino") is not None:
    import openvino
    from openvino import opset8 as op

Array = NDArray[Any]
DEVICE = "CPU"
# Without it CPUs that have bfloat16 compute layers in full precision with 8 bits of mantissa.
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}


def read(model: Any, program: Any, about: Description) -> Any:
    """A model of ONNX as one of OpenVINO for batches of 1, with the description in its `rt_info`.
    `program`: what it was made of."""
    try:
        found = openvino_of(model, about.input_shape)
    except RuntimeError as error:
        raise _refused(program, str(error)) from None
    found.set_rt_info(about.as_json(), ["bitfront"])
    return found


def openvino_of(model: Any, shape: Sequence[int]) -> Any:
    """A model of ONNX as one of OpenVINO, for one example of this shape."""
    found = openvino.Core().read_model(model.SerializeToString())
    found.reshape([1, *shape])
    return found


def _refused(program: Any, text: str) -> UserError:
    """What OpenVINO does not read, with the layer it belongs to."""
    asked = re.search(r"Node\((\w+)\): (?:node_)?([\w.]+)", text)
    kind, name = asked.groups() if asked else ("the network", "")
    layers = [layer_of(node) for node in program.graph.nodes if node.name == name]
    reasons = [line.strip() for line in text.splitlines() if line.strip()]
    after = [i for i, line in enumerate(reasons) if line.startswith("While validating node")]
    reason = reasons[after[0] + 1] if after and after[0] + 1 < len(reasons) else reasons[-1]
    where = f"{layers[0]}: " if layers else ""
    return UserError(
        f"--openvino: {where}OpenVINO refuses {kind}: {reason[:200]}", "--onnx does not"
    )


@dataclass(frozen=True)
class Layer:
    """Signs times signs: a Convolution or a MatMul, and the Select that makes the signs."""

    node: Any
    x: Any
    """the output of a node whose signs are taken"""
    threshold: Array
    weight: Array
    """outputs, inputs, rows, columns: +1 or -1"""
    name: str

    @property
    def flat(self) -> bool:
        """Whether it is a linear layer."""
        return bool(self.node.get_type_name() == "MatMul")

    def geometry(self) -> tuple[list[int], ...]:
        """Strides, zeros before and behind, dilations: in two dimensions."""
        if self.flat:
            return [1, 1], [0, 0], [0, 0], [1, 1]
        found = self.node.get_attributes()
        names = ("strides", "pads_begin", "pads_end", "dilations")
        fill = {"strides": 1, "dilations": 1, "pads_begin": 0, "pads_end": 0}
        return tuple([*found[name], fill[name]][:2] for name in names)


def layers(model: Any) -> Iterator[Layer | tuple[str, str]]:
    """Every layer at level B or A, or its name and why BinaryConvolution has no form of it."""
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind not in ("Convolution", "MatMul", "GroupConvolution", "ConvolutionBackpropData"):
            continue
        signs, weights = (node.input_value(i).get_node() for i in (0, 1))
        if not _is_signs(signs):
            continue
        name, weight = _named(weights), _constant(weights)
        if kind not in ("Convolution", "MatMul"):
            yield name, "groups" if kind == "GroupConvolution" else "transposed"
        elif weight is None or not bool((np.abs(weight) == 1).all()):
            yield name, "weights that are no signs"
        else:
            threshold = _constant(signs.input_value(0).get_node().input_value(1).get_node())
            if kind == "MatMul" and not node.get_attributes()["transpose_b"]:
                weight = weight.T
            whole = weight.reshape(*weight.shape, *(1,) * (4 - weight.ndim))
            x = signs.input_value(0).get_node().input_value(0)
            yield Layer(node, x, np.asarray(threshold, np.float32), whole, name)


def _is_signs(node: Any) -> bool:
    """Whether it is the Select that stands for `bitfront::signs`."""
    if node.get_type_name() != "Select":
        return False
    asked, one, other = (node.input_value(i).get_node() for i in range(3))
    signs = _is_number(one, 1.0) and _is_number(other, -1.0)
    return signs and bool(asked.get_type_name() == "GreaterEqual")


def _named(weights: Any) -> str:
    """The layer that weights belong to, which may be reshaped before they are used."""
    while weights.get_input_size():
        weights = weights.input_value(0).get_node()
    return str(weights.get_friendly_name()).removesuffix(".weight")


def _is_number(node: Any, number: float) -> bool:
    """Whether a node is this one number."""
    found = _constant(node)
    return found is not None and found.size == 1 and float(found.reshape(-1)[0]) == number


def _constant(node: Any) -> Array | None:
    return np.array(node.get_data()) if node.get_type_name() == "Constant" else None


def binary(model: Any) -> tuple[int, dict[str, str]]:
    """Make every layer a BinaryConvolution that this one computes rightly, in place; returns how
    many there are, and the others with the reason."""
    made, others = 0, {}
    for layer in list(layers(model)):
        if not isinstance(layer, Layer):
            others[layer[0]] = layer[1]
        elif (why := wrong(layer)) is not None:
            others[layer.name] = why
        else:
            result = product(layer, layer.x)
            result.set_friendly_name(layer.name)
            _used_by(layer.node).replace(result.output(0))
            made += 1
    model.validate_nodes_and_infer_types()
    return made, others


def _used_by(node: Any) -> Any:
    """The output that sums leave by: behind the clip that keeps others from multiplying into the
    signs, where there is one."""
    out = node.output(0)
    for kind, bound in (("Maximum", -LARGEST_SUM), ("Minimum", LARGEST_SUM)):
        readers = list(out.get_target_inputs())
        clip = readers[0].get_node() if len(readers) == 1 else None
        if clip is None or clip.get_type_name() != kind:
            return node.output(0)
        if not any(_is_number(clip.input_value(i).get_node(), bound) for i in (0, 1)):
            return node.output(0)
        out = clip.output(0)
    return out


def product(layer: Layer, x: Any) -> Any:
    """The layer as BinaryConvolution of x. Tokens lie along the rows of an image."""
    rank = len(x.get_partial_shape())
    order = [0, rank - 1, *range(1, rank - 1)]
    if layer.flat and rank > 2:
        x = op.transpose(x, order).output(0)
    sizes = list(x.get_shape())
    if rank != 4 or layer.flat:
        # 0: as many as there are; batches may get another size.
        x = op.reshape(x, [0, sizes[1], int(np.prod(sizes[2:])), 1], True)
    y = binary_convolution(x, layer)
    outputs = len(layer.weight)
    if not layer.flat:
        return y if rank == 4 else op.reshape(y, [0, outputs, y.get_output_shape(0)[2]], True)
    y = op.reshape(y, [0, outputs, *sizes[2:]], True)
    return op.transpose(y, [0, *range(2, rank), 1]) if rank > 2 else y


def binary_convolution(image: Any, layer: Layer) -> Any:
    """The operation itself, of an image."""
    below = just_below(np.broadcast_to(layer.threshold.reshape(-1), layer.weight.shape[1:2]))
    limit = op.constant(below.reshape(1, -1, 1, 1))
    zero, one = op.constant(np.float32(0)), op.constant(np.float32(1))
    signs = op.fake_quantize(image, limit, limit, zero, one, 2)
    strides, before, behind, dilations = layer.geometry()
    places = (strides, before, behind, dilations)
    weight = bits(layer.weight > 0, "little")
    return op.binary_convolution(signs, weight, *places, "xnor-popcount", 0.0)


def just_below(threshold: Array) -> Array:
    """The largest numbers below, without denormal ones, which the CPU may take for 0."""
    found = np.nextafter(threshold.astype(np.float32), np.float32(-np.inf))
    tiny = np.finfo(np.float32).tiny
    return np.where(np.abs(found) < tiny, -tiny, found).astype(np.float32)


def bits(ones: Array, order: Literal["big", "little"]) -> Any:
    """A constant of one bit per element: Convert reads the highest bit of a byte first,
    BinaryConvolution the lowest. It has memory of its own: what OpenVINO shares with numpy is read
    after numpy has given it back."""
    packed = np.packbits(ones.reshape(-1), bitorder=order)
    tensor = openvino.Tensor(packed, openvino.Shape(list(ones.shape)), openvino.Type.u1)
    return openvino.op.Constant(tensor, shared_memory=False)


def wrong(layer: Layer) -> str | None:
    """Why a layer is no BinaryConvolution: what is known, and what one says of random inputs. None:
    it computes what torch does."""
    inputs, (strides, *_) = layer.weight.shape[1], layer.geometry()
    if inputs % 8:
        return f"{inputs} inputs are no multiple of 8"
    if max(strides) > 2:
        return f"stride {max(strides)}"
    shape = [int(n) for n in layer.x.get_shape()]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    given = op.parameter(shape, np.float32)
    try:
        model = openvino.Model([product(layer, given.output(0))], [given])
        found = torch.from_numpy(compiled(model)(x.numpy())[0])
    except RuntimeError as error:
        return f"OpenVINO refuses it: {first_line(error)[:80]}"
    return None if torch.equal(found, expected(layer, x)) else "OpenVINO computes other sums"


def expected(layer: Layer, x: Tensor) -> Tensor:
    """The sums as torch computes them."""
    weight, threshold = torch.tensor(layer.weight), torch.tensor(layer.threshold)
    signs = torch.where(x >= threshold, 1.0, -1.0)
    if layer.flat:
        return nn.functional.linear(signs, weight[:, :, 0, 0])
    strides, before, behind, dilations = layer.geometry()
    rank = x.dim()
    image = signs if rank == 4 else signs.unsqueeze(-1)
    padded = nn.functional.pad(image, (before[1], behind[1], before[0], behind[0]))
    y = nn.functional.conv2d(padded, weight, None, strides, 0, dilations)
    return y if rank == 4 else y.squeeze(-1)


def one_bit_weights(model: Any) -> int:
    """Store every constant that is signs times scales as bits, in place; returns how many weights
    of one bit there are. OpenVINO unpacks those of ordinary layers when it loads the file."""
    count = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant":
            continue
        if node.get_element_type() == openvino.Type.u1:
            count += int(np.prod(node.get_output_shape(0)))
        if node.get_element_type() != openvino.Type.f32:
            continue
        found = one_bit.split(np.array(node.get_data()))
        if found is None:
            continue
        count += found.signs.size
        made = op.convert(bits(found.signs > 0, "big"), "f32")
        made = op.subtract(op.multiply(made, np.float32(2)), np.float32(1))
        if found.pruned:
            made = op.multiply(made, op.convert(bits(found.signs != 0, "big"), "f32"))
        if found.scale is not None:
            made = op.multiply(made, op.constant(found.scale))
        node.output(0).replace(made.output(0))
    return count


def saved(model: Any, path: Path) -> None:
    """Write the two files of a model."""
    openvino.save_model(model, path, compress_to_fp16=False)


def compiled(model: Any) -> Any:
    """A model, or a file, ready to be called on as many threads as torch has."""
    config = EXACT | {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    return openvino.Core().compile_model(model, DEVICE, config)


def runner(path: Path) -> Callable[[Tensor], Tensor]:
    """A function that computes a file in OpenVINO."""
    try:
        run = compiled(path)
    except RuntimeError as error:
        raise UserError(f"--openvino: OpenVINO refuses the file: {first_line(error)}") from None

    def outputs(x: Tensor) -> Tensor:
        parts = [np.array(run(part.contiguous().numpy())[0]) for part in x.split(1)]
        return torch.from_numpy(np.concatenate(parts))

    return outputs
