"""Claims about network slimming: its cost, its budget, and that what was removed stays away."""

from __future__ import annotations

import pytest
import torch

from bitfront.trainables.cost import cost_table, task_cost_table
from bitfront.trainables.models import build_model
from bitfront.trainables.task import Task
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.slimming import channels_to_keep, norms_after, slim, slim_pct


def test_the_norm_of_a_layer_is_the_one_its_output_goes_into() -> None:
    model = build_model("cresnet", {"depth": 8, "width": 4}, (1, 8, 8), 10)
    names = [layer.name for layer in model.plan_layers("body")]
    found = norms_after(model, names, torch.randn(2, 1, 8, 8))
    assert list(found) == names
    for name, norm in found.items():
        assert norm is model.get_submodule(name.rpartition(".")[0]).norm


def test_the_cost_scales_with_the_channels_that_are_left() -> None:
    table = cost_table("cresnet20", {}, (3, 32, 32), 10)
    names = [layer.name for layer in table.plan_layers]
    assert slim_pct(table, {}) == 100.0
    assert slim_pct(table, dict.fromkeys(names, 0.0)) == pytest.approx(
        100 * (704_512 + 3 * (16_384 + 8_192 + 4_096)) / 41_414_656
    )
    one = 100 * 0.5 * (2_359_296 + 3 * 16_384) / 41_414_656
    assert slim_pct(table, {names[0]: 0.5}) == pytest.approx(100 - one)


@pytest.mark.parametrize("budget", [80.0, 40.0, 10.0])
def test_the_smallest_scales_go_first_until_the_budget_is_met(budget: float) -> None:
    table = cost_table("cresnet20", {}, (3, 32, 32), 10)
    torch.manual_seed(0)
    channels = [16] * 6 + [32] * 6 + [64] * 6
    scales = {
        layer.name: torch.rand(n) for layer, n in zip(table.plan_layers, channels, strict=True)
    }
    masks = channels_to_keep(table, scales, budget)
    shares = {name: float(mask.float().mean()) for name, mask in masks.items()}
    pct = slim_pct(table, shares)
    assert budget - 0.4 < pct <= budget
    gone = torch.cat([scales[n][~m] for n, m in masks.items()])
    left = torch.cat([scales[n][m] for n, m in masks.items() if m.sum() > 1])
    assert gone.max() <= left.min()
    assert all(mask.any() for mask in masks.values())


def test_a_slimmed_network_learns_within_its_budget() -> None:
    task = Task.model_validate(
        {
            "dataset": "digits",
            "model": {"name": "cresnet", "depth": 8, "width": 8},
            "epochs": 3,
            "batch_size": 64,
            "optimizer": {"lr": 0.02},
        }
    )
    found = slim(task, 60.0, search_data(task), penalty=1e-2)
    assert found.flops_pct <= 60.0
    assert found.training_epochs == 6
    assert found.val_accuracy > 0.6
    names = [layer.name for layer in task_cost_table(task).plan_layers]
    assert list(found.kept) == names
    assert sum(found.kept.values()) < 2 * (8 + 16 + 32)
