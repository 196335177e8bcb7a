"""Claims about network slimming: which channels go, what a network without them costs, and that
what was removed stays away."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bitfront.search.config.load import load_data
from bitfront.spaces.costs import costs_of
from bitfront.trainables.cost import cost_table, task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.channels import Wiring, norms_after
from bitfront.trainables.methods.slimming import Left, Slimming, read, written
from bitfront.trainables.models import build_model
from bitfront.trainables.selectors import SelectionSpec, select
from bitfront.trainables.selectors.scores.channels import Slimmer
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.pretraining import PretrainedCache

SHAPE = (1, 8, 8)
TASK = {
    "dataset": "digits",
    "model": {"name": "cresnet", "depth": 8, "width": 4, "activation": "binrelu"},
    "epochs": 2,
    "batch_size": 64,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "subset": 400,
}


def slimmer(unit: str, scales: dict[str, list[float]] | None = None) -> Slimmer:
    params = {"depth": 8, "width": 4, "unit": unit, "activation": "binrelu"}
    table = cost_table("cresnet", params, SHAPE, 10)
    model = build_model("cresnet", params, SHAPE, 10)
    wiring = Wiring(model, [layer.name for layer in table.layers], SHAPE)
    every = {name: [1.0] * count for name, count in wiring.channels().items()}
    return Slimmer(table, wiring, every | (scales or {}))


def test_the_norm_of_a_layer_is_the_one_its_output_goes_into() -> None:
    model = build_model("cresnet", {"depth": 8, "width": 4}, SHAPE, 10)
    names = [layer.name for layer in model.plan_layers("body")]
    found = norms_after(model, names, torch.randn(2, *SHAPE))
    assert list(found) == names
    for name, norm in found.items():
        assert norm is model.get_submodule(name.rpartition(".")[0]).norm


# The network by hand: a 3x3 convolution of c to d channels on 8 x 8 pixels has 576 c d MACs and
# 64 d output elements, which count 3 each; the stem has c = 1 and d = 4, the first block c = d = 4.
STEM, FIRST = 576 * 4 + 3 * 256, 576 * 16 + 3 * 256


def saved(found: Slimmer, removed: int) -> float:
    """The flops that are saved, in units of one."""
    whole = found.table.totals("F" * len(found.table.plan_layers))["flops"]
    return whole * (1 - found.pct(removed) / 100)


def test_a_channel_between_two_convolutions_is_saved_twice() -> None:
    """With one shortcut around two convolutions nothing else reaches what lies between them: of 4
    channels, one is an output of the first and an input of the second."""
    found = slimmer("classic", {"stages.0.0.first.conv": [0.1, 1.0, 1.0, 1.0]})
    outputs = FIRST / 4
    inputs = 576 * 16 / 4
    assert saved(found, 0) == pytest.approx(0)
    assert saved(found, 1) == pytest.approx(outputs + inputs)


def test_an_input_that_a_shortcut_adds_to_is_not_saved() -> None:
    """With a shortcut around every convolution the second still gets the stem's channel; without
    that one too, both convolutions lose an input."""
    name = "stages.0.0.first.conv"
    alone = slimmer("bi-real", {name: [0.1, 1.0, 1.0, 1.0]})
    assert saved(alone, 1) == pytest.approx(FIRST / 4)
    both = slimmer("bi-real", {name: [0.1, 1.0, 1.0, 1.0], "stem.conv": [0.2, 1.0, 1.0, 1.0]})
    of_first = FIRST - (576 * 3 * 3 + 3 * 192)
    of_second = 576 * 4 * 4 - 576 * 4 * 3
    assert saved(both, 2) == pytest.approx(STEM / 4 + of_first + of_second)


def test_depthwise_convolutions_lose_an_output_with_their_input() -> None:
    """Block 1 of a narrow MobileNet: a depthwise 3x3 of 4 channels on 4 x 4 pixels (576 MACs), then
    a 1x1 of 4 to 8 channels (512 MACs). Its first channel is gone in the stem and the depthwise
    layer; shortcuts around both carry nothing then, and the copy behind the 1x1 adds nothing to
    outputs 1 and 5, which the 1x1 itself still makes."""
    params = {"form": "depthwise", "width": 4, "activation": "binrelu"}
    table = cost_table("mobilenet", params, SHAPE, 10)
    model = build_model("mobilenet", params, SHAPE, 10)
    wiring = Wiring(model, [layer.name for layer in table.layers], SHAPE)
    masks = {n: torch.ones(c, dtype=torch.bool) for n, c in wiring.channels().items()}
    masks["stem.conv"][0] = masks["blocks.0.spatial.conv"][0] = False
    inputs = wiring.inputs(masks)
    assert inputs["blocks.0.spatial.conv"].tolist() == [False, True, True, True]
    assert inputs["blocks.0.pointwise.conv"].tolist() == [False, True, True, True]
    assert inputs["blocks.1.spatial.conv"].all()
    every = {n: [1.0] * c for n, c in wiring.channels().items()}
    every["stem.conv"][0], every["blocks.0.spatial.conv"][0] = 0.1, 0.2
    left = Slimmer(table, wiring, every).left(2)
    assert left["blocks.0.spatial.conv"].weights == 9 * 3
    assert left["blocks.0.pointwise.conv"].weights == 8 * 3


@pytest.mark.parametrize("budget", [80.0, 40.0, 10.0])
def test_the_smallest_scales_go_first_until_the_budget_is_met(budget: float) -> None:
    rng = torch.Generator().manual_seed(0)
    plain = slimmer("bi-real")
    scales = {n: torch.rand(len(p), generator=rng).tolist() for n, p in plain.places.items()}
    found = slimmer("bi-real", scales)
    removed = next(k for k in range(len(found.order)) if found.pct(k) <= budget)
    assert found.pct(removed - 1) > budget
    left = found.left(removed)
    gone = [
        v for n, c in scales.items() for v, on in zip(c, left[n].outputs, strict=True) if not on
    ]
    stay = [
        v
        for n, c in scales.items()
        for v, on in zip(c, left[n].outputs, strict=True)
        if on and sum(left[n].outputs) > 1
    ]
    assert max(gone) <= min(stay)
    assert all(any(each.outputs) for each in left.values())


def test_a_perceptron_keeps_all_inputs_of_its_first_layer() -> None:
    """Whose images cannot be made smaller. A unit of a perceptron of 64-4-4-4 is an output of 64
    weights and an input of the four units behind it; outputs count 3 each."""
    table = cost_table("mlp", {"depth": 3, "width": 4}, SHAPE, 10)
    model = build_model("mlp", {"depth": 3, "width": 4}, SHAPE, 10)
    wiring = Wiring(model, [layer.name for layer in table.layers], SHAPE)
    scales = {name: [1.0] * count for name, count in wiring.channels().items()}
    scales["layers.0"][2] = 0.1
    found = Slimmer(table, wiring, scales)
    assert saved(found, 0) == pytest.approx(0)
    assert saved(found, 1) == pytest.approx(64 + 3 + 4)


def test_channels_are_written_and_read() -> None:
    flags = tuple(bool(i % 3) for i in range(70))
    left = {"a.conv": Left(flags, (True, False), 93), "b": Left((True,), (True,), 1)}
    assert read(written(left)) == {"a.conv": left["a.conv"]}  # b lost nothing
    assert read("") == {}
    with pytest.raises(UserError, match="channels"):
        read("a:b")


def test_channels_of_another_network_are_refused() -> None:
    text = written({"stem.conv": Left((True, False), (True,), 9)})
    spec = TrialSpec(
        task=Task.model_validate(TASK), method="slimming", params={"channels": text}, plan="S" * 6
    )
    with pytest.raises(UserError, match="another network"):
        costs_of(spec)


SEARCH = {
    "name": "slim",
    "task": TASK,
    "space": {
        "method": "bi-real",
        "plan": {"selector": ["first", "slimming"], "budget": [100, 50], "rule": "nearest"},
    },
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrialSpec, Training]:
    """A trial at 50 % of the flops and its training, from the selector on."""
    folder = tmp_path_factory.mktemp("pretrained")
    config, space = load_data(SEARCH, "slim")
    settled = space.settled(lambda spec: select(spec, folder, folder), config.search.seed)
    values = {"plan.selector": "slimming", "plan.budget": 50}
    spec = settled.walk(lambda name, domain: values[name], seed=3)
    before = sorted(folder.iterdir())
    cache = PretrainedCache(folder)
    training = Training(spec, *search_data(spec.task), pretrained=cache)
    while not training.done:
        training.epoch()
    assert sorted(folder.iterdir()) == before  # it starts from what the selector trained
    return spec, training


def norms_of(training: Training) -> dict[str, Any]:
    assert isinstance(training.method, Slimming)
    return training.method.norms


def test_a_search_trains_what_the_selector_left(made: tuple[TrialSpec, Training]) -> None:
    spec, training = made
    assert (spec.method, spec.plan) == ("slimming", "SSSSSS")
    costs = costs_of(spec)
    assert 45 < costs["flops_pct"] <= 50
    training.network.verify()
    assert training.history[-1]["val_accuracy"] > 0.2


def test_removed_channels_are_zero_after_training(made: tuple[TrialSpec, Training]) -> None:
    """Seen in the trained network: what is counted as removed is zero for every example."""
    spec, training = made
    left = read(str(spec.params["channels"]))
    assert any(not all(each.inputs) for each in left.values())
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        training.model.get_submodule(name).register_forward_pre_hook(
            lambda _m, args, name=name: seen.update({name: args[0]})
        )
        for name in left
    ]
    training.model.eval()
    with torch.no_grad():
        training.model(torch.randn(32, *SHAPE))
    for hook in hooks:
        hook.remove()
    for name, each in left.items():
        live = (
            seen[name].abs().amax((0, 2, 3)) if seen[name].dim() == 4 else seen[name].abs().amax(0)
        )
        assert not live[~torch.tensor(each.inputs)].any()
        norm = norms_of(training).get(name)
        if norm is not None:
            gone = ~torch.tensor(each.outputs)
            assert not norm.weight[gone].any()
            assert not norm.bias[gone].any()


def test_the_sparse_training_shrinks_scales_by_a_proximal_step() -> None:
    """gamma <- sign(gamma) max(|gamma| - lr penalty, 0), with lr 0.5 and a penalty of 0.2."""
    spec = TrialSpec(
        task=Task.model_validate(TASK), method="slimming", params={"penalty": 0.2}, plan="S" * 6
    )
    training = Training(spec, *search_data(spec.task))
    method = training.method
    norm = next(iter(norms_of(training).values()))
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, -0.5, 0.05, -0.05]))
    method.learning_rate = 0.5
    method.after_step()
    torch.testing.assert_close(norm.weight.detach(), torch.tensor([0.4, -0.4, 0.0, 0.0]))


def test_a_whole_budget_is_a_network_in_full_precision() -> None:
    _, space = load_data(SEARCH, "slim")
    values = {"plan.selector": "slimming", "plan.budget": 100}
    spec = space.walk(lambda name, domain: values[name])
    assert spec.canonical().method == "fp"


def test_what_is_removed_before_a_selector_has_run_has_the_cost_of_the_budget() -> None:
    """In a preview the scales are made up."""
    _, space = load_data(SEARCH, "slim")
    values = {"plan.selector": "slimming", "plan.budget": 50}
    spec = space.walk(lambda name, domain: values[name])
    assert 45 < costs_of(spec)["flops_pct"] <= 50


def test_a_selector_of_channels_starts_no_free_search() -> None:
    search = {
        **SEARCH,
        "space": {"method": "bi-real", "plan": {"per": "layer", "levels": ["F", "B"]}},
        "search": {"start_from": {"selector": "slimming"}},
    }
    with pytest.raises(UserError, match="slimming removes channels"):
        load_data(search, "slim")


def test_its_selection_costs_one_training(tmp_path) -> None:
    spec = SelectionSpec(selector="slimming", task=Task.model_validate(TASK))
    found = select(spec, pretrained=tmp_path)
    assert found.training_epochs == 2
    assert set(found.channels) >= {layer.name for layer in task_cost_table(spec.task).plan_layers}
    assert "stem.conv" in found.channels
