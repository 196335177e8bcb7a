"""Robust accuracy in final training is that of all test images, as papers report it, unless the
task says a number."""

from __future__ import annotations

import pytest

from bitfront.search.recipes import seed_training
from bitfront.search.recipes.final_training import train_recipe
from bitfront.search.recipes.recipe import FinalSettings, Recipe
from bitfront.trainables.data import load_test
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training import evaluation, robustness

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("wanted", [None, 7])
def test_all_test_images_are_attacked_unless_a_number_is_given(tmp_path, monkeypatch, wanted):
    attacked = []
    measure = robustness.robust_accuracies

    def counted(model, part, task, attacks):
        attacked.append(len(part.first(task.attack.examples)))
        return measure(model, part, task, attacks)

    monkeypatch.setattr(evaluation, "robust_accuracies", counted)
    attack = {"eps": 0.05, "evaluate": ["pgd10"], "examples": 3, "final_examples": wanted}
    task = Task.model_validate(
        {"dataset": "digits", "model": {"name": "mlp", "depth": 3, "width": 8}, "attack": attack}
    )
    recipe = Recipe(
        name="quick-38580e12",
        spec=TrialSpec(task=task, method="bnn", plan="WW"),
        final=FinalSettings(epochs=1, seeds=[0]),
        expected={"val_accuracy": 0.9, "flops": 7.0},
    )
    train_recipe(recipe, tmp_path)
    assert attacked[-1] == (wanted or len(load_test("digits")))


def test_the_number_of_attacked_test_images_is_no_part_of_a_trial():
    def spec(**attack):
        task = {"dataset": "digits", "model": "mlp", "attack": {"eps": 0.05, **attack}}
        return TrialSpec(task=Task.model_validate(task), method="bnn", plan="BB")

    assert spec(train="pgd").fingerprint() == spec(train="pgd", final_examples=9).fingerprint()
    clean = spec()
    assert seed_training._attacking(clean, 100) is clean
