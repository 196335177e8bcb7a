"""QONNX for FINN and other tools for FPGAs: signs are BipolarQuant nodes, of inputs and of weights,
which are floats in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfront.trainables.runtime.exports import one_bit
from bitfront.trainables.runtime.exports.base import EXTRA, FORMATS, ONNX, Format

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from bitfront.trainables.runtime.exports.form import Source

DOMAIN, OPERATOR = "qonnx.custom_op.general", "BipolarQuant"
UNIT = "bitfront.unit"


class QonnxFile(Format):
    """`--qonnx`."""

    name = "qonnx"
    doc = "QONNX for FINN: BipolarQuant nodes, batches of 1"
    ending = ".qonnx.onnx"
    extra = EXTRA
    needs = ONNX

    def write(self, source: Source, path: Path) -> str:
        graphs = _graphs()
        model = graphs.graph_of(source.single)
        count = bipolar(model, graphs.Reading(model.graph))
        graphs.described(model, source.description)
        graphs.saved(model, path)
        return f"{count} BipolarQuant nodes, {graphs.batches(model)}"

    @contextmanager
    def running(self, path: Path) -> Iterator[Callable[[Tensor], Tensor]]:
        import onnx

        model = with_meaning(onnx.load_model(str(path)))
        yield _graphs().runner(model.SerializeToString())


def bipolar(model: Any, reading: Any) -> int:
    """Make every sign of a graph a BipolarQuant node, in place; returns how many there are."""
    from onnx import helper, numpy_helper

    graph = model.graph
    signs = {id(node): (x, t) for node, x, t in reading.signs()}
    sums = {id(node) for node in reading.sums()}
    kept: list[Any] = [numpy_helper.from_array(np.ones((), np.float32), UNIT)]
    nodes: list[Any] = []

    def quantized(x: str, scale: str, out: str) -> None:
        nodes.append(helper.make_node(OPERATOR, [x, scale], [out], f"{out}.signs", domain=DOMAIN))

    for tensor in graph.initializer:
        found = one_bit.split(np.asarray(numpy_helper.to_array(tensor)))
        if found is None or found.pruned:
            kept.append(tensor)
            continue
        name, scale = f"{tensor.name}.latent", UNIT
        kept.append(numpy_helper.from_array(found.signs.astype(np.float32), name))
        if found.scale is not None:
            scale = f"{tensor.name}.scale"
            kept.append(numpy_helper.from_array(found.scale, scale))
        quantized(name, scale, tensor.name)
    for node in graph.node:
        out = node.output[0]
        if id(node) in signs:
            x, threshold = signs[id(node)]
            if not reading.is_number(threshold, 0.0):
                nodes.append(helper.make_node("Sub", [x, threshold], [f"{out}.shifted"]))
                x = f"{out}.shifted"
            quantized(x, UNIT, out)
        elif id(node) in sums:
            nodes.append(helper.make_node("Identity", [node.input[0]], [out]))
        else:
            nodes.append(node)
    made = _needed(nodes, graph.output[0].name)
    read = {name for node in made for name in node.input}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(made)
    graph.initializer.extend(tensor for tensor in kept if tensor.name in read)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return sum(node.op_type == OPERATOR for node in made)


def _needed(nodes: list[Any], output: str) -> list[Any]:
    """The nodes that the output depends on, without those that only pass something on."""
    makers = {name: node for node in nodes for name in node.output}
    passed: dict[str, str] = {}
    for node in nodes:
        if node.op_type == "Identity" and node.output[0] != output:
            passed[node.output[0]] = passed.get(node.input[0], node.input[0])
        else:
            node.input[:] = [passed.get(name, name) for name in node.input]
    wanted, waiting = set(), [output]
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and id(node) not in wanted:
            wanted.add(id(node))
            waiting += node.input
    return [node for node in nodes if id(node) in wanted]


def with_meaning(model: Any) -> Any:
    """The model with a definition of BipolarQuant in standard operators, which lets any runtime
    compute it: scale where x >= 0, else -scale."""
    from onnx import helper, parser

    body = """
    <domain: "qonnx.custom_op.general", opset_import: ["" : 18]>
    BipolarQuant (x, scale) => (y)
    {
        zero = Constant <value = float {0}> ()
        positive = GreaterOrEqual (x, zero)
        negative = Neg (scale)
        y = Where (positive, scale, negative)
    }
    """
    function = parser.parse_function(body)
    for each in model.opset_import:
        if not each.domain:
            del function.opset_import[:]
            function.opset_import.append(helper.make_opsetid("", each.version))
    model.functions.append(function)
    return model


def _graphs() -> Any:
    from bitfront.trainables.runtime.exports import onnx_graph

    return onnx_graph


FORMATS.register(QonnxFile())
