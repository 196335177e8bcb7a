"""Claims about files for OpenVINO: what its binary convolution computes is what torch does, and
layers that it has wrong are left to others and named."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from bitfront.trainables import packed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.data.no_data import input_name
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.deployment import deploy
from bitfront.trainables.runtime.exports.description import describe
from bitfront.trainables.runtime.exports.examples import random_examples
from bitfront.trainables.task import Task, TrialSpec
from testbed.binary_nets import made_binary

openvino = pytest.importorskip("openvino", reason="the extra `openvino` is not installed")
pytest.importorskip("onnxscript", reason="the extra `openvino` is not installed")


def as_file(network, shape, folder):
    """The network, compared with torch on seven random inputs."""
    task = Task.model_validate({"dataset": input_name(shape, 4), "model": {"name": "mlp"}})
    spec = TrialSpec(task=task, method="bnn", plan="F")
    examples = random_examples(DATASETS.get(task.dataset), 7)
    network = network.requires_grad_(False).eval()
    (made,) = deploy(network, describe(spec, {}), {"openvino": folder / "net.xml"}, examples)
    return made


def kinds_of(path):
    model = openvino.Core().read_model(path)
    return model, [node.get_type_name() for node in model.get_ordered_ops()]


def test_layers_are_binary_convolutions_that_compute_what_torch_does(deployed, packed_file):
    made = deployed("levels", "openvino")
    assert made.examples == 8
    assert made.difference < 1e-4
    assert "4 of 4 layers" in made.about
    model, kinds = kinds_of(made.path)
    assert kinds.count("BinaryConvolution") == 4
    network, spec, notes = packed.load(packed_file("levels"))
    about = json.loads(model.get_rt_info("bitfront").astype(str))
    assert (about["plan"], about["mean"]) == (spec.plan, list(describe(spec, notes).mean))
    # Another size of the batch is a line of the user's.
    model.reshape([3, 1, 8, 8])
    x = torch.randn(3, 1, 8, 8)
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    found = np.array(openvino.Core().compile_model(model, "CPU", exact)(x.numpy())[0])
    with torch.no_grad():
        assert float((torch.from_numpy(found) - network(x)).abs().max()) < 1e-4
    binary = sum(m.weight.numel() for m in network.modules() if hasattr(m, "input_quantizer"))
    stored = sum(
        int(np.prod(node.get_output_shape(0)))
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Constant" and node.get_element_type() == openvino.Type.u1
    )
    assert stored > binary
    # One layer is in full precision, a third of what all would take.
    assert made.path.with_suffix(".bin").stat().st_size < 4 * binary / 3


class Odd(nn.Module):
    """Layers that BinaryConvolution has right, and three that it has wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.twelve = made_binary(nn.Conv2d(12, 16, 3, padding=1), torch.rand(16), shifted=True)
        self.stride = made_binary(nn.Conv2d(16, 24, 3, stride=3, padding=1))
        self.grouped = made_binary(nn.Conv2d(24, 48, 1, groups=3), torch.rand(48))
        self.row = made_binary(nn.Conv1d(48, 40, 3, padding=1), shifted=True)
        self.tokens = made_binary(nn.Linear(40, 8), torch.rand(8), shifted=True)
        self.last = made_binary(nn.Linear(72, 4))

    def forward(self, x):
        x = self.grouped(self.stride(self.twelve(x)) / 20)
        return self.last(self.tokens(self.row(x.flatten(2)).transpose(1, 2) / 20).flatten(1))


def test_layers_that_it_computes_wrongly_stay_ordinary_and_are_named(tmp_path):
    torch.manual_seed(0)
    made = as_file(Odd(), (12, 7, 7), tmp_path)
    assert made.difference < 1e-4
    assert "3 of 6 layers" in made.about
    told = ("twelve: 12 inputs are no multiple of 8", "stride: stride 3", "grouped: groups")
    assert [each for each in told if each not in made.about] == []
    _, kinds = kinds_of(made.path)
    assert kinds.count("BinaryConvolution") == 3


def test_what_openvino_does_not_read_is_refused_by_the_name_of_its_layer(tmp_path):
    pool = nn.AvgPool2d(2, ceil_mode=True)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), pool, nn.Flatten())
    with pytest.raises(UserError, match=r"^--openvino: 1: OpenVINO refuses AveragePool: Kernel"):
        as_file(network, (1, 3, 3), tmp_path)
    assert list(tmp_path.iterdir()) == []
