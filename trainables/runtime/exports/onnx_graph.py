"""Graphs of ONNX made from a traced network: shared by the formats that begin with one. The form in
the graph is standard operators; `bitfront::signs` becomes Where(x >= t, 1, -1), `bitfront::sums` a
Clip that changes nothing, and keeps runtimes from multiplying what follows into the signs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.runtime.exports.description import INPUT, OUTPUT, Description
from bitfront.trainables.runtime.exports.form import LARGEST_SUM, SIGNS, SUMS, layer_of, quiet

# onnx writes newer versions than released runtimes read.
IR_VERSION = 10
Array = NDArray[Any]


def graph_of(program: Any) -> Any:
    """The ONNX model of a traced network, with weights in float32."""
    from onnxscript import opset18 as op

    def signs(x: Any, threshold: Any) -> Any:
        one, other = op.Constant(value_float=1.0), op.Constant(value_float=-1.0)
        choose: Any = op.Where
        return choose(op.GreaterOrEqual(x, threshold), one, other)

    def sums(y: Any) -> Any:
        low, high = op.Constant(value_float=-LARGEST_SUM), op.Constant(value_float=LARGEST_SUM)
        return op.Clip(y, low, high)

    try:
        with quiet():
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                custom_translation_table={SIGNS: signs, SUMS: sums},
                input_names=[INPUT],
                output_names=[OUTPUT],
            )
    except Exception as error:  # torch.onnx has many types, and long messages
        raise _refused(program, error) from None
    assert made is not None
    return _tidied(made.model_proto)


def _refused(program: Any, error: Exception) -> UserError:
    """What could not be translated, with the layer it belongs to."""
    causes, text = [error], str(error)
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)  # type: ignore[arg-type]
    text = "\n".join(map(str, causes))
    with quiet():
        parts = program.run_decompositions()  # as torch.onnx does before it translates
    for node in (*program.graph.nodes, *parts.graph.nodes):
        if node.op == "call_function" and f"%{node.name} :" in text:
            return UserError(f"{layer_of(node)}: ONNX has no form of {node.target}")
    return UserError(f"torch.onnx refuses the network: {first_line(causes[-1])}")


def _tidied(model: Any) -> Any:
    """The model without the places in files of this machine that torch notes, with names for the
    size of the batch."""
    model.ir_version = min(model.ir_version, IR_VERSION)
    model.producer_name, model.producer_version = "bitfront", ""
    graph = model.graph
    del graph.value_info[:]
    for each in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del each.metadata_props[:]
        each.doc_string = ""
    graph.name = "network"
    batch = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output):
        for size in value.type.tensor_type.shape.dim:
            if batch and size.dim_param == batch:
                size.dim_param = "batch"
    return model


def described(model: Any, description: Description) -> None:
    """Put the description into the metadata of a model, in place: `bitfront` holds all of it as
    JSON, `mean`, `std` and `class_names` what most readers look for."""
    about = description.as_dict()
    found = {"bitfront": description.as_json()}
    found |= {key: json.dumps(about[key]) for key in ("mean", "std", "class_names")}
    for key, value in found.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value


def batches(model: Any) -> str:
    """Which batches a model takes, in words."""
    size = model.graph.input[0].type.tensor_type.shape.dim[0]
    return "batches of any size" if size.dim_param else f"batches of {size.dim_value}"


@dataclass
class Reading:
    """A graph and what its constants hold."""

    graph: Any

    def __post_init__(self) -> None:
        from onnx import numpy_helper

        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.constants: dict[str, Any] = {t.name: t for t in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant":
                for given in node.attribute:
                    if given.name == "value":
                        self.constants[node.output[0]] = given.t
                    elif given.name == "value_float":
                        array = np.array(given.f, np.float32)
                        self.constants[node.output[0]] = numpy_helper.from_array(array)

    def value(self, name: str) -> Array | None:
        """What a constant holds."""
        from onnx import numpy_helper

        found = self.constants.get(name)
        return None if found is None else np.asarray(numpy_helper.to_array(found))

    def is_number(self, name: str, number: float) -> bool:
        """Whether a constant is this one number."""
        found = self.value(name)
        return found is not None and found.size == 1 and float(found.reshape(-1)[0]) == number

    def signs(self) -> Iterator[tuple[Any, str, str]]:
        """(node, input, threshold) of every Where that stands for `bitfront::signs`."""
        for node in self.graph.node:
            if node.op_type != "Where":
                continue
            asked, one, other = node.input
            maker = self.makers.get(asked)
            if maker is None or maker.op_type != "GreaterOrEqual":
                continue
            if self.is_number(one, 1.0) and self.is_number(other, -1.0):
                yield node, maker.input[0], maker.input[1]

    def sums(self) -> Iterator[Any]:
        """Every Clip that stands for `bitfront::sums`."""
        for node in self.graph.node:
            if node.op_type == "Clip" and len(node.input) == 3:
                low, high = node.input[1:]
                if self.is_number(low, -LARGEST_SUM) and self.is_number(high, LARGEST_SUM):
                    yield node


def saved(model: Any, path: Path) -> None:
    """Write a model after onnx has checked it."""
    import onnx

    onnx.checker.check_model(model)
    onnx.save_model(model, str(path))


def session_of(model: Path | bytes) -> Any:
    """A session of onnxruntime, on as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    given = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def runner(model: Path | bytes) -> Callable[[Tensor], Tensor]:
    """A function that computes a model in onnxruntime."""
    session = session_of(model)
    single = session.get_inputs()[0].shape[0] == 1

    def run(x: Tensor) -> Tensor:
        parts = x.split(1) if single else (x,)
        found = [session.run(None, {INPUT: part.contiguous().numpy()})[0] for part in parts]
        return torch.from_numpy(np.concatenate(found))

    return run
