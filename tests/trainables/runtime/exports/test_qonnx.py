"""Claims about QONNX files: signs are BipolarQuant nodes as the qonnx package defines them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitfront.trainables import packed
from bitfront.trainables.runtime.exports.qonnx_file import DOMAIN, OPERATOR

onnx = pytest.importorskip("onnx", reason="the extra `deploy` is not installed")
op_run = pytest.importorskip("onnx.reference.op_run")
pytest.importorskip("onnxscript", reason="the extra `deploy` is not installed")


class BipolarQuant(op_run.OpRun):  # type: ignore[name-defined]
    """The operator as the documentation of QONNX has it, computed apart from our own definition."""

    op_domain = DOMAIN

    def _run(self, x, scale):
        ones = np.ones(x.shape, np.float32)
        return (np.where(x >= 0, ones, -ones) * scale,)


def test_bipolar_nodes_are_the_signs_of_weights_and_inputs(deployed, packed_file):
    made = deployed("levels", "qonnx")
    model = onnx.load(made.path)
    quantized = [node for node in model.graph.node if node.op_type == OPERATOR]
    assert {node.domain for node in quantized} == {DOMAIN}
    # ABWFBA: five layers have binary weights, and four of them binary inputs.
    assert len(quantized) == 5 + 4
    assert not {"Where", "GreaterOrEqual"} & {n.op_type for n in model.graph.node[:5]}
    evaluator = onnx.reference.ReferenceEvaluator(model, new_ops=[BipolarQuant])
    network, _, _ = packed.load(packed_file("levels"))
    x = torch.randn(1, 1, 8, 8)
    (found,) = evaluator.run(None, {"input": x.numpy()})
    with torch.no_grad():
        assert float((torch.from_numpy(found) - network(x)).abs().max()) < 1e-4
