"""Claims about binary activations in networks that were not written for them: they are measured,
and a treatment before the sign, or another activation, makes them respond to the example."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bitfront.spaces.costs import costs_of
from bitfront.trainables import packed
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.binary import apply_plan
from bitfront.trainables.layers.responses import respond
from bitfront.trainables.layers.treatments import InputNorm, InputShift
from bitfront.trainables.methods import build_method
from bitfront.trainables.models.activations import replace_activations
from bitfront.trainables.plan import plan_layers
from bitfront.trainables.training.norms import start_shifts

RESNET = {"name": "timm/test_resnet"}


class Plain(nn.Module):
    """A chain of layers with functional ReLUs, which nothing can replace."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def made(activations: str) -> tuple[nn.Module, list]:
    torch.manual_seed(0)
    model = Plain()
    layers = plan_layers(model)
    return model, apply_plan(model, layers, "B" * len(layers), build_method("bnn", {}), activations)


def test_behind_a_relu_every_sign_is_plus_one_and_the_output_constant() -> None:
    model, binary = made("keep")
    found = respond(model, binary, torch.randn(6, 8))
    assert [layer.ones for layer in found.layers] == [1.0, 1.0]
    assert found.degenerate == ["layers.1", "layers.2"]
    assert not found.differ


@pytest.mark.parametrize("activations", ["norm", "shift"])
def test_a_treated_input_tells_examples_apart(activations: str) -> None:
    model, binary = made(activations)
    found = respond(model, binary, torch.randn(6, 8))
    assert found.degenerate == []
    assert found.differ
    assert all(0.1 < layer.ones < 0.9 for layer in found.layers)


def test_an_input_that_is_the_same_before_its_sign_is_no_loss() -> None:
    class Positions(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return self.layers[0](x) + self.layers[1](torch.ones(5, 8)).sum()

    model = Positions()
    binary = apply_plan(model, plan_layers(model)[:1], "B", build_method("bnn", {}))
    found = respond(model, binary, torch.randn(6, 8))
    (layer,) = found.layers
    assert layer.fixed
    assert found.degenerate == []
    assert found.differ


@pytest.mark.parametrize("bias", [0.0, 4.6])
def test_a_classifier_that_starts_at_0_makes_no_constant_network(bias: float) -> None:
    model, binary = made("norm")
    nn.init.zeros_(model.layers[3].weight)
    nn.init.constant_(model.layers[3].bias, bias)
    found = respond(model, binary, torch.randn(6, 8))
    assert found.hidden
    assert not found.constant
    assert found.degenerate == []
    assert not model.layers[3].weight.any()


@pytest.mark.parametrize("last", [lambda out: 0 * out, lambda out: (out - 100).relu()])
@pytest.mark.parametrize("zero", [False, True])
def test_an_output_of_0_that_no_classifier_could_change_is_constant(last, zero) -> None:
    model, binary = made("norm")
    if zero:
        nn.init.zeros_(model.layers[3].weight)
    model.register_forward_hook(lambda _module, _args, out: last(out))
    found = respond(model, binary, torch.randn(6, 8))
    assert found.constant
    assert not found.hidden


def test_measuring_leaves_statistics_and_mode_as_they_were() -> None:
    model, binary = made("norm")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    respond(model.train(), binary, torch.randn(6, 8))
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_step_counts_an_input_once_in_the_running_statistics() -> None:
    model, _ = made("norm")
    norm = model.layers[1].input_quantizer.treatment
    seen: list[Tensor] = []
    norm.register_forward_pre_hook(lambda _m, args: seen.append(args[0].detach()))
    model.train()(torch.randn(6, 8)).sum().backward()
    assert torch.allclose(norm.running_mean, 0.1 * seen[0].mean(0))
    assert int(norm.num_batches_tracked) == 1


@pytest.mark.parametrize("shape", [(6, 3, 4, 5), (6, 3, 4)])
def test_norms_and_shifts_are_per_channel_of_convolutions(shape: tuple[int, ...]) -> None:
    layer = (nn.Conv2d if len(shape) == 4 else nn.Conv1d)(3, 2, 1)
    x = torch.randn(shape) + torch.arange(3.0).view(1, 3, *(1,) * (len(shape) - 2))
    others = [0, *range(2, len(shape))]
    assert InputNorm(layer)(x).mean(others).abs().max() < 1e-5
    shift = InputShift(layer)
    shift.starting = True
    assert shift(x).mean(others).abs().max() < 1e-5


def test_shifts_start_from_the_training_data(make_spec, start) -> None:
    training = start(make_spec(model=RESNET, activations="shift", epochs=1))
    shifts = [m.shift for m in training.model.modules() if isinstance(m, InputShift)]
    assert all(float(shift.detach().abs().max()) == 0 for shift in shifts)
    start_shifts(training.model, training.train)
    assert all(float(shift.detach().mean()) > 0 for shift in shifts)


@pytest.mark.parametrize("activations", ["norm", "shift", "binrelu", "hardtanh", "rprelu"])
def test_a_treated_network_is_stored_at_its_cost_and_reloads_bit_for_bit(
    make_spec, start, finish, tmp_path: Path, activations: str
) -> None:
    spec = make_spec("react", "B", model=RESNET, activations=activations, epochs=1)
    training = finish(start(spec))
    path = tmp_path / "net.safetensors"
    size = packed.save(training.network, spec, path, {})
    assert size == costs_of(spec)["bytes"]
    loaded, stored, _ = packed.load(path)
    assert stored.task.activations == activations
    x = torch.randn(5, 1, 8, 8).contiguous(memory_format=torch.channels_last)
    training.model.eval()
    with torch.no_grad():
        assert torch.equal(loaded(x), training.model(x))


def test_a_treated_training_resumes_with_identical_results(make_spec, start, finish) -> None:
    spec = make_spec(model=RESNET, activations="shift", epochs=2, subset=100)
    whole = start(spec)
    whole.epoch()
    again = start(spec)
    again.load_state_dict(copy.deepcopy(whole.state_dict()))
    finish(whole)
    finish(again)
    assert all(
        torch.equal(value, again.model.state_dict()[key])
        for key, value in whole.model.state_dict().items()
    )


def test_layers_in_full_precision_see_what_they_always_saw(make_spec, start) -> None:
    outputs = []
    for activations in ("keep", "norm"):
        training = start(make_spec(level="F", model=RESNET, activations=activations))
        outputs.append(training.model.eval()(torch.ones(2, 1, 8, 8)))
    assert torch.equal(*outputs)


def test_ids_know_activations_only_where_they_are_used(make_spec) -> None:
    old = make_spec(level="B", model=RESNET)
    kept = make_spec(level="B", model=RESNET, activations="keep")
    treated = make_spec(level="B", model=RESNET, activations="norm")
    assert old.fingerprint() == kept.fingerprint() != treated.fingerprint()
    weights = (make_spec(level="W", model=RESNET, activations=a) for a in ("keep", "norm"))
    assert len({spec.fingerprint() for spec in weights}) == 1
    auto = make_spec(level="B", model=RESNET, activations="auto")
    assert auto.fingerprint() == treated.fingerprint()


def test_one_module_with_several_widths_gets_an_rprelu_for_each() -> None:
    from torchvision.models.resnet import Bottleneck, ResNet

    model = ResNet(Bottleneck, [1, 1, 1, 1], num_classes=3)
    replace_activations(model, "rprelu", (3, 32, 32), "net")
    assert sorted(model.layer1[0].relu) == ["256", "64"]
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 3)


def test_rprelu_learns_along_the_channels_of_a_linear_layer() -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 2))
    replace_activations(model, "rprelu", (5, 8), "net")
    assert model[1]["6"].before.shape == (6,)
    assert model(torch.randn(3, 5, 8)).shape == (3, 5, 2)


def test_a_network_without_activation_modules_is_refused_with_what_works() -> None:
    with pytest.raises(UserError, match="no activation modules that binrelu") as error:
        replace_activations(Plain(), "binrelu", (8,), "net")
    assert "norm" in str(error.value.hint)
