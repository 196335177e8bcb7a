"""ONNX in standard operators, with one bit per binary weight: for onnxruntime and whatever else
reads ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bitfront.trainables.runtime.exports import one_bit
from bitfront.trainables.runtime.exports.base import EXTRA, FORMATS, ONNX, Format

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from bitfront.trainables.runtime.exports.form import Source


class OnnxFile(Format):
    """`--onnx`."""

    name = "onnx"
    doc = "ONNX in standard operators, one bit per binary weight"
    ending = ".onnx"
    extra = EXTRA
    needs = ONNX

    def write(self, source: Source, path: Path) -> str:
        graphs = _graphs()
        model = graphs.graph_of(source.traced)
        weights = one_bit.pack(model)
        graphs.described(model, source.description)
        graphs.saved(model, path)
        return f"{weights:,} weights of one bit, {graphs.batches(model)}"

    @contextmanager
    def running(self, path: Path) -> Iterator[Callable[[Tensor], Tensor]]:
        yield _graphs().runner(path)


def _graphs() -> Any:
    from bitfront.trainables.runtime.exports import onnx_graph

    return onnx_graph


FORMATS.register(OnnxFile())
