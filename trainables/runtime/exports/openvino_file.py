"""OpenVINO's IR: B layers are its BinaryConvolution, which its CPU plugin computes on packed bits.

Nobody looks after that operation (openvino#20889, #30367), and for many shapes it is silently
wrong. Each layer is therefore computed by it here and compared; one that it has wrong stays an
ordinary convolution of signs, and is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bitfront.trainables.runtime.exports.base import FORMATS, Format

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from bitfront.trainables.runtime.exports.form import Source

# So many layers that stay ordinary are told with their reasons.
TOLD = 3


class OpenvinoFile(Format):
    """`--openvino`."""

    name = "openvino"
    doc = "IR of OpenVINO with its binary convolution, for x86; experimental"
    ending = ".xml"
    other_endings = False
    beside = (".bin",)
    extra = "openvino"
    needs = ("onnx", "onnxscript", "openvino")

    def write(self, source: Source, path: Path) -> str:
        from bitfront.trainables.runtime.exports import onnx_graph

        graphs = _graphs()
        found = onnx_graph.graph_of(source.traced)
        model = graphs.read(found, source.traced, source.description)
        made, others = graphs.binary(model)
        weights = graphs.one_bit_weights(model)
        graphs.saved(model, path)
        about = f"{weights:,} weights of one bit, batches of 1"
        about += f", {made} of {made + len(others)} layers with binary inputs as BinaryConvolution"
        told = [f"{name}: {why}" for name, why in others.items()]
        more = f", and {len(told) - TOLD} more" if len(told) > TOLD else ""
        return about + (f" (others: {'; '.join(told[:TOLD])}{more})" if told else "")

    @contextmanager
    def running(self, path: Path) -> Iterator[Callable[[Tensor], Tensor]]:
        yield _graphs().runner(path)


def _graphs() -> Any:
    from bitfront.trainables.runtime.exports import openvino_graph

    return openvino_graph


FORMATS.register(OpenvinoFile())
