"""Claims about the networks of papers on binary optimizers: counts, orders, switches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bitfront.spaces.space import FixedPlan, FreePlan
from bitfront.trainables.cost import cost_table
from bitfront.trainables.models import build_model
from bitfront.trainables.models.brn import ReActBlock
from bitfront.trainables.plan import plan_layers


def on_meta(name: str, shape: tuple[int, ...], classes: int, **params) -> nn.Module:
    with torch.device("meta"):
        return build_model(name, params, shape, classes)


def binary_weights(model: nn.Module, scope: str = "all") -> int:
    layers = plan_layers(model, scope)
    return sum(model.get_submodule(layer.name).weight.numel() for layer in layers)


@pytest.mark.parametrize(
    ("name", "params", "shape", "classes", "count"),
    [
        ("bayesbinn-mlp", {}, (1, 28, 28), 10, 10_014_720),
        ("bayesbinn-cnn", {}, (3, 32, 32), 10, 14_022_016),
        ("bayesbinn-cnn", {}, (3, 32, 32), 100, 14_114_176),
        ("bayesbinn-mlp", {"depth": 2, "width": 100}, (1, 28, 28), 10, 89_400),
        ("tanh-mlp", {}, (2,), 2, 4417),
        ("tanh-mlp", {"norm_output": True}, (1,), 1, 4353),
    ],
)
def test_parameter_counts_of_bayesbinn(name, params, shape, classes, count) -> None:
    """docs/methods.md 2.4: everything there is to learn may be binary."""
    for order in ("bn_relu", "relu_bn"):
        given = params if name == "tanh-mlp" else {**params, "order": order}
        model = on_meta(name, shape, classes, **given)
        assert sum(p.numel() for p in model.parameters()) == count
        assert binary_weights(model) == count


@pytest.mark.parametrize(("classes", "real"), [(100, 14_372), (10, 8_522)])
def test_parameter_counts_of_brn(classes: int, real: int) -> None:
    """docs/methods.md 3.3: binary 267 264."""
    model = on_meta("brn", (3, 32, 32), classes)
    assert len(plan_layers(model)) == 18
    assert binary_weights(model, "body") == 267_264
    assert sum(p.numel() for p in model.parameters()) == 267_264 + real


def test_the_orders_of_relu_and_batch_norm() -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 1, 8, 8)
    for order, smallest in (("bn_relu", True), ("relu_bn", False)):
        model = build_model("bayesbinn-mlp", {"width": 8, "order": order}, (1, 8, 8), 3)
        hidden = model.units[0](x.flatten(1))
        assert bool((hidden >= 0).all()) == smallest
        out = model(x)
        # The last layer has no ReLU: its outputs are normed.
        torch.testing.assert_close(out.mean(0), torch.zeros(3), atol=1e-5, rtol=0)


def test_a_convolution_is_pooled_before_it_is_normed() -> None:
    model = build_model("bayesbinn-cnn", {"width": 2}, (1, 8, 8), 3)
    pooled = [not isinstance(unit.pool, nn.Identity) for unit in model.convolutions]
    assert pooled == [False, True] * 3
    unit = model.convolutions[1]
    x = torch.randn(4, 2, 8, 8)
    unit.eval()
    expected = torch.relu(unit.norm(torch.max_pool2d(unit.layer(x), 2)))
    torch.testing.assert_close(unit(x), expected)
    assert expected.shape == (4, 2, 4, 4)


def test_two_classes_of_points_are_one_logit() -> None:
    model = build_model("tanh-mlp", {}, (2,), 2)
    x, y = torch.randn(6, 2), torch.tensor([0, 1, 1, 0, 1, 0])
    logits = model(x)
    assert torch.equal(logits[:, 0], torch.zeros(6))
    both = nn.functional.cross_entropy(logits, y)
    one = nn.functional.binary_cross_entropy_with_logits(logits[:, 1], y.float())
    torch.testing.assert_close(both, one)


def test_a_bias_of_the_tanh_mlp_is_the_weight_of_an_input_of_one() -> None:
    model = build_model("tanh-mlp", {"depth": 1, "width": 3}, (2,), 1)
    x = torch.randn(5, 2)
    first, last = (layer.weight for layer in model.layers)
    hidden = torch.tanh(x @ first[:, :2].T + first[:, 2])
    torch.testing.assert_close(model(x), hidden @ last[:, :3].T + last[:, 3])


def test_the_switches_of_the_ablation_change_what_they_say() -> None:
    def parameters(**switches) -> set[str]:
        return {name for name, _ in on_meta("brn", (3, 32, 32), 10, **switches).named_parameters()}

    whole = parameters()
    without = {
        "bias_layers": ("before.bias", "middle.bias", "after.bias"),
        "scale": ("scale.scale",),
    }
    for switch, endings in without.items():
        gone = whole - parameters(**{switch: False})
        assert gone == {name for name in whole if name.endswith(endings)}
        assert len(gone) == 18 * len(endings)
    gone = whole - parameters(act="relu")
    assert len(gone) == 18
    assert all(name.endswith("act.weight") for name in gone)


def test_first_last_and_shortcuts_join_the_plan_with_real_inputs() -> None:
    ends = cost_table("brn", {"binarize_first_last": True}, (3, 32, 32), 10)
    names = [layer.name for layer in ends.plan_layers]
    assert (names[0], names[-1], len(names)) == ("stem", "classifier", 20)
    assert FixedPlan("B").make(ends, None, 0) == "W" + "B" * 18 + "W"
    drawn = FreePlan("model", ("B",)).make(ends, lambda name, domain: "B", 0)
    assert drawn == "W" + "B" * 18 + "W"
    shortcuts = cost_table("brn", {"binarize_shortcut": True}, (3, 32, 32), 10)
    plan = FixedPlan("B").make(shortcuts, None, 0)
    assert (len(plan), plan.count("W")) == (20, 2)
    assert FixedPlan("F").make(ends, None, 0) == "F" * 20


def test_a_scale_before_batch_norm_changes_nothing() -> None:
    """docs/methods.md 3.9: up to the epsilon of batch norm, in training."""
    torch.manual_seed(0)
    block = ReActBlock(4, 8, True, "prelu", True).train()
    x = torch.randn(8, 4, 6, 6)
    before = block(x)
    with torch.no_grad():
        block.scale.scale.mul_(7.0)
    torch.testing.assert_close(block(x), before, atol=1e-3, rtol=1e-3)


def test_the_teacher_of_bnew_is_as_large_as_a_resnet20() -> None:
    model = on_meta("wideresnet", (3, 32, 32), 100)
    assert len(plan_layers(model)) == 18
    assert 260_000 < sum(p.numel() for p in model.parameters()) < 290_000
