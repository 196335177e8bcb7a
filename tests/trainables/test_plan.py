"""Claims about plans: a letter a layer, checked before they are applied, applied to any network."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.binary import apply_plan
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import build_model
from bitfront.trainables.plan import PlanLayer, binary_layers, check_plan, expand, plan_layers
from bitfront.trainables.selectors.scores.scoring import Switch

THREE = [PlanLayer(name, name, "body") for name in ("one", "two", "three")]


@given(st.text("FSWBA", min_size=3, max_size=3))
def test_every_word_of_the_right_letters_and_length_is_a_plan(plan: str) -> None:
    assert check_plan(plan, THREE) == plan


@pytest.mark.parametrize(
    ("plan", "levels", "message"),
    [
        ("FB", "FWB", "'FB' has 2 letters, the model has 3 layers"),
        ("FBFB", "FWB", "has 4 letters"),
        ("", "FWB", "has 0 letters"),
        ("FXB", "FWB", "letter 2 is 'X', a plan has the letters F .full precision., S"),
        ("fFF", "FWB", "letter 1 is 'f'"),
        ("FFA", "FWB", "letter 3 is 'A', but the method takes only F, W, B"),
        ("FFB", "FW", "letter 3 is 'B', but the method takes only F, W"),
        ("WFF", "F", "letter 1 is 'W', but the method takes only F"),
        ("WFF", "B", "letter 1 is 'W', but the method takes only F, B"),
    ],
)
def test_a_wrong_plan_says_what_is_wrong(plan: str, levels: str, message: str) -> None:
    with pytest.raises(UserError, match=f"plan: .*{message}"):
        check_plan(plan, THREE, levels)


def test_full_precision_is_accepted_by_every_method() -> None:
    assert check_plan("FFF", THREE, "B") == "FFF"


def test_a_letter_a_group_becomes_a_letter_a_layer() -> None:
    assert expand(["a", "a", "b", "a", "c"], "FWB") == "FFWFB"
    assert expand([], "") == ""
    with pytest.raises(ValueError, match="argument"):
        expand(["a", "b"], "F")


def test_binary_layers_are_those_that_are_not_f() -> None:
    assert binary_layers("WFB", THREE) == [(THREE[0], "W"), (THREE[2], "B")]
    assert binary_layers("FFF", THREE) == []


def test_a_foreign_network_offers_all_its_weighted_layers_but_the_first_and_last() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 4),
        nn.Linear(4, 2),
    )  # fmt: skip
    assert [layer.name for layer in plan_layers(net)] == ["2", "4"]
    assert [layer.name for layer in plan_layers(net, "all")] == ["0", "2", "4", "5"]


def test_applying_a_plan_touches_the_planned_layers_and_no_other() -> None:
    model = build_model("mlp", {"depth": 4, "width": 8}, (6,), 3)
    before = {name: p.clone() for name, p in model.named_parameters()}
    layers = plan_layers(model)
    made = apply_plan(model, layers, "WFB", build_method("bnn", {}))
    assert [(layer.name, layer.level) for layer in made] == [("layers.1", "W"), ("layers.3", "B")]
    modules = dict(model.named_modules())
    for index in range(4):
        module = modules[f"layers.{index}"]
        assert parametrize.is_parametrized(module) == (index in (1, 3))
        assert hasattr(module, "input_quantizer") == (index == 3)
    after = dict(model.named_parameters())
    assert len(after) == len(before)
    for name, value in before.items():
        path = name.replace(".weight", ".parametrizations.weight.original")
        assert torch.equal(after.get(path, after.get(name)), value)


def test_an_all_f_plan_changes_nothing() -> None:
    model = build_model("mlp", {"depth": 3, "width": 8}, (6,), 3).eval()
    x = torch.randn(5, 6)
    before = model(x)
    assert apply_plan(model, plan_layers(model), "FF", build_method("bnn", {})) == []
    assert torch.equal(model(x), before)


def test_a_b_layer_sees_only_plus_and_minus_one() -> None:
    model = build_model("mlp", {"depth": 3, "width": 8}, (6,), 3)
    apply_plan(model, plan_layers(model), "WB", build_method("bnn", {}))
    seen: dict[str, torch.Tensor] = {}
    for name in ("layers.1", "layers.2"):
        model.get_submodule(name).register_forward_pre_hook(
            lambda _, args, name=name: seen.update({name: args[0]})
        )
    for model_ in (model.train(), model.eval()):
        model_(torch.randn(16, 6))
        assert set(seen["layers.2"].unique().tolist()) == {-1.0, 1.0}
        assert seen["layers.1"].unique().numel() > 2


@pytest.mark.parametrize("method", ["bnn", "bnn++", "ede+", "react"])
@pytest.mark.parametrize("model", ["mlp", "cresnet"])
def test_quantizing_again_in_the_backward_pass_changes_no_gradient(method, model) -> None:
    """The same layer with its quantized input kept, as torch would by itself."""
    from bitfront.trainables.layers import inputs

    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        params = {"depth": 3, "width": 8} if model == "mlp" else {"depth": 8, "width": 8}
        net = build_model(model, params, (1, 8, 8), 3).to(memory_format=torch.channels_last)
        layers = plan_layers(net)
        apply_plan(net, layers, "B" * len(layers), build_method(method, {}))
        net(torch.randn(6, 1, 8, 8)).square().sum().backward()
        return [p.grad for p in net.parameters()]

    again = gradients()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs._QuantizedAgain, "pack", lambda self, tensor: tensor.detach())
        kept = gradients()
    assert all(torch.equal(a, b) for a, b in zip(again, kept, strict=True))


@pytest.mark.parametrize("binary_input", [True, False])
def test_another_quantizer_put_in_place_is_the_one_that_quantizes_again(binary_input) -> None:
    """As selectors do to switch a layer between its versions."""
    model = build_model("mlp", {"depth": 2, "width": 8}, (6,), 3)
    apply_plan(model, plan_layers(model), "B", build_method("bnn", {}))
    layer = model.get_submodule("layers.1")
    switch = layer.input_quantizer = Switch(layer.input_quantizer)
    switch.binary = binary_input
    x = torch.randn(4, 8, requires_grad=True)
    seen = x.clamp(-1, 1).sign() if binary_input else x
    layer(x).sum().backward()
    latent = layer.parametrizations.weight.original
    assert torch.equal(latent.grad, seen.detach().sum(0).expand_as(latent))


def test_an_input_changed_in_place_after_its_use_is_noticed() -> None:
    model = build_model("mlp", {"depth": 2, "width": 8}, (6,), 3)
    apply_plan(model, plan_layers(model), "B", build_method("bnn", {}))
    layer = model.get_submodule("layers.1")
    x = torch.randn(4, 8, requires_grad=True) * 1.0
    out = layer(x)
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place"):
        out.sum().backward()


def test_an_error_in_a_layer_leaves_no_hooks_behind() -> None:
    model = build_model("mlp", {"depth": 2, "width": 8}, (6,), 3)
    apply_plan(model, plan_layers(model), "B", build_method("bnn", {}))
    with pytest.raises(RuntimeError):
        model.get_submodule("layers.1")(torch.randn(4, 5, requires_grad=True))
    x = torch.randn(3, requires_grad=True)
    saved = (x * x).grad_fn._saved_self
    assert saved is x
