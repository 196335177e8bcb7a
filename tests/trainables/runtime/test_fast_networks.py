"""Claims about whole networks on packed bits: the outputs of torch bit for bit, fused where
torch.fx can follow, layer by layer where it cannot, and torch where nothing fits."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from bitfront.trainables.runtime import network as runtime
from bitfront.trainables.runtime.chains import Links, PackedLayer
from bitfront.trainables.runtime.network import fast
from testbed.binary_nets import made_binary, planned_network

pytest.importorskip("numba", reason="kernels need Numba")
SHAPE = (3, 16, 16)


@pytest.mark.parametrize("activation", ["binrelu", "relu", "hardtanh", "identity", "rprelu"])
@pytest.mark.parametrize("plan", ["B", "FBWBFB"])
def test_a_residual_network_is_fused_and_gives_the_bits_of_torch(activation, plan):
    params = {"depth": 8, "width": 8, "activation": activation}
    _, network = planned_network("cresnet", params, SHAPE, plan, scale="channel")
    x = torch.randn(2, *SHAPE)
    made = fast(network, x)
    assert made.fused
    assert len(made.kernels) == (6 if plan == "B" else 3)
    for batch in (1, 3):
        other = torch.randn(batch, *SHAPE)
        with torch.no_grad():
            assert torch.equal(made.network(other), network(other))


def test_batch_norms_shortcuts_and_layers_of_a_stage_are_one_call():
    _, network = planned_network("cresnet", {"depth": 8, "width": 8}, SHAPE, "B")
    made = fast(network, torch.randn(1, *SHAPE)).network
    programs = [m.program.rows for m in made.modules() if isinstance(m, PackedLayer)]
    called = [str(node.target) for node in made.graph.nodes if node.op == "call_module"]
    assert all(len(rows) >= 2 for rows in programs)
    assert called == [
        "stem.conv",
        "chain0",
        "stages.1.0.shortcut.conv",
        "chain1",
        "stages.2.0.shortcut.conv",
        "chain2",
        "classifier",
    ]


def test_a_copy_of_a_fast_network_gives_the_same_outputs():
    _, network = planned_network("cresnet", {"depth": 8, "width": 8}, SHAPE, "B")
    x = torch.randn(2, *SHAPE)
    made = fast(network, x).network
    assert torch.equal(copy.deepcopy(made)(x), made(x))


class Branching(nn.Module):
    """A network whose path depends on its input, which torch.fx does not follow."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        y = self.first(x)
        return self.second(y if float(y.sum()) > 0 else -y)


def test_a_network_that_cannot_be_traced_runs_layer_by_layer():
    network = Branching().eval()
    made_binary(network.first, torch.rand(16))
    made_binary(network.second, torch.rand(4))
    made = fast(network, torch.randn(2, 16))
    assert (made.fused, made.kernels) == (False, ["first", "second"])
    x = torch.randn(5, 16)
    with torch.no_grad():
        assert torch.equal(made.network(x), network(x))


def test_a_layer_that_is_called_twice_is_not_fused_into_one_of_its_calls():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = made_binary(nn.Linear(16, 16), torch.rand(16))
            self.act = nn.ReLU()

        def forward(self, x):
            return self.layer(self.act(self.layer(x)) - 0.5)

    network = Twice().eval()
    x = torch.randn(3, 16)
    made = fast(network, x)
    assert made.kernels == ["layer"]
    assert torch.equal(made.network(x), network(x))


def test_a_kernel_that_computes_something_else_is_not_used(monkeypatch):
    _, network = planned_network("mlp", {"depth": 3, "width": 16}, (64,), "B")
    right = Links.__call__
    monkeypatch.setattr(Links, "__call__", lambda *args: (right(*args)[0] + 1,))
    made = fast(network, torch.randn(2, 64))
    assert made.network is network
    assert str(made) == "torch: kernels gave other outputs than torch"


def test_without_numba_torch_computes_and_says_how_to_change_that(monkeypatch):
    _, network = planned_network("mlp", {"depth": 3, "width": 16}, (64,), "B")
    monkeypatch.setattr(runtime, "has_kernels", lambda: False)
    made = fast(network, torch.randn(2, 64))
    assert made.network is network
    assert "pip install 'bitfront[fast]'" in str(made)


def test_a_network_without_binary_inputs_is_left_to_torch():
    _, network = planned_network("mlp", {"depth": 3, "width": 16}, (64,), "W")
    assert fast(network, torch.randn(2, 64)).reason == "no layer has binary weights and inputs"
