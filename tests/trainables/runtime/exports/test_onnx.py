"""Claims about ONNX files: standard operators, one bit per binary weight, exact sums, and what
onnxruntime computes is what torch does."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from bitfront.trainables import packed
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports import one_bit
from bitfront.trainables.runtime.exports.description import Description
from bitfront.trainables.runtime.exports.form import traced

onnx = pytest.importorskip("onnx", reason="the extra `deploy` is not installed")
pytest.importorskip("onnxscript", reason="the extra `deploy` is not installed")


@pytest.mark.parametrize("name", ["levels", "vit"])
def test_onnxruntime_computes_what_torch_does(deployed, name):
    made = deployed(name, "onnx")
    assert made.examples == 8
    assert made.difference < 1e-3


def test_an_onnx_file_has_one_bit_per_binary_weight_and_standard_operators(deployed, packed_file):
    made = deployed("plain", "onnx")
    model = onnx.load(made.path)
    assert {node.domain for node in model.graph.node} == {""}
    network, _, _ = packed.load(packed_file("plain"))
    binary = sum(m.weight.numel() for m in network.modules() if hasattr(m, "input_quantizer"))
    stored = [t for t in model.graph.initializer if t.name.endswith(".bits")]
    assert sum(len(onnx.numpy_helper.to_array(t)) for t in stored) == binary // 8
    floats = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == 1]
    assert max(a.size for a in floats) < binary // 8
    # The batch norm behind the sums is not multiplied into the signs.
    assert sum(node.op_type == "Clip" for node in model.graph.node) >= 6


def test_an_onnx_file_says_what_it_needs_and_nothing_of_this_machine(deployed):
    made = deployed("plain", "onnx")
    model = onnx.load(made.path)
    notes = {entry.key: entry.value for entry in model.metadata_props}
    about = json.loads(notes["bitfront"])
    assert json.loads(notes["mean"]) == about["mean"]
    assert {*about} - {"bitfront", "input", "output"} == {*Description.__dataclass_fields__}
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert b"/site-packages/" not in made.path.read_bytes()


@pytest.mark.parametrize("shape", [(16, 24), (8, 5, 3, 3), (40, 7)])
@pytest.mark.parametrize("scale", ["none", "whole", "outputs", "second"])
@pytest.mark.parametrize("zeros", [False, True])
def test_signs_and_scales_of_a_weight_give_it_back(shape, scale, zeros):
    draw = np.random.default_rng(0)
    weight = np.where(draw.random(shape) < 0.5, -1, 1).astype(np.float32)
    ones = (1,) * len(shape)
    sizes = {"whole": ones, "outputs": (shape[0], *ones[1:]), "second": (1, shape[1], *ones[2:])}
    if scale in sizes:
        weight *= draw.random(sizes[scale], dtype=np.float32) + 0.5
    if zeros:
        weight[draw.random(shape) < 0.3] = 0
    found = one_bit.split(weight)
    assert found.pruned == zeros
    assert np.array_equal(found.signs * (1 if found.scale is None else found.scale), weight)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["w"], ["y"])],
            "one",
            [],
            [onnx.helper.make_tensor_value_info("y", 1, shape)],
            [onnx.numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
    )
    assert one_bit.pack(model) == weight.size
    (again,) = onnx.reference.ReferenceEvaluator(model).run(None, {})
    assert np.array_equal(again, weight)


def test_weights_of_full_precision_stay_as_they_are():
    assert one_bit.split(torch.randn(32, 32).numpy()) is None
    assert one_bit.split(np.ones((4, 4), np.float32)) is None


class ByHand(nn.Module):
    """Attention as it is written without heads: three dimensions, a mask or none."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.register_buffer("mask", torch.ones(5, 5).tril().bool())

    def forward(self, x):
        q, k, v = (project(x) for project in self.projections)
        attended = nn.functional.scaled_dot_product_attention
        return attended(q, k, v, scale=0.5) + attended(q, k, v, attn_mask=self.mask)


def test_attention_of_three_dimensions_is_computed_as_torch_does():
    from bitfront.trainables.runtime.exports import onnx_graph

    torch.manual_seed(0)
    network, x = ByHand().eval(), torch.randn(4, 5, 16)
    model = onnx_graph.graph_of(traced(network, x[:2]))
    found = onnx_graph.runner(model.SerializeToString())(x)
    with torch.no_grad():
        assert float((found - network(x)).abs().max()) < 1e-5


class Distances(nn.Module):
    """An operator that torch takes apart before it finds no form of the parts."""

    def forward(self, x):
        return torch.cdist(x, x)


def test_what_has_no_form_in_onnx_is_refused_by_the_name_of_its_layer():
    from bitfront.trainables.runtime.exports import onnx_graph

    program = traced(nn.Sequential(nn.Linear(16, 16), Distances()), torch.randn(2, 5, 16))
    with pytest.raises(UserError, match=r"^1: ONNX has no form of aten\._cdist_forward"):
        onnx_graph.graph_of(program)
