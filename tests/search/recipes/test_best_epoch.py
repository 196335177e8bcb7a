"""`bitfront train --keep best`: a validation part is held out, and the network of its best epoch is
tested and packed."""

import copy
import json

import pytest
import torch

import bitfront as bf
from bitfront import cli
from bitfront.search.recipes.final_training import train_recipe
from bitfront.search.recipes.recipe import FinalSettings, Recipe, load_recipe, save_recipe
from bitfront.trainables.data import load_test
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data

EPOCHS = 6
TASK = {
    "dataset": "digits",
    "model": {"name": "mlp", "depth": 3, "width": 16},
    "epochs": 2,
    "batch_size": 64,
    "val_fraction": 0.3,
    # A rate that makes accuracies jump, so that the last epoch is not the best one.
    "optimizer": {"name": "adam", "lr": 0.1},
    "schedule": "constant",
}


def recipe(keep="best", **task):
    spec = TrialSpec(task=Task.model_validate(TASK | task), method="bnn", plan="BB")
    final = FinalSettings(epochs=EPOCHS, seeds=[0], keep=keep)
    return Recipe(
        name="jumping", spec=spec, final=final, expected={"val_accuracy": 0.9, "flops": 7}
    )


def accuracy(network, part):
    """The share of examples that the network classifies correctly."""
    with torch.no_grad():
        return float((network.eval()(part.x).argmax(1) == part.y).double().mean())


def by_hand():
    """(best epoch, its validation accuracy, its test accuracy, test accuracy of the last epoch) of
    a training that stops for nothing and looks at a copy of its network after every epoch."""
    task = Task.model_validate(TASK | {"epochs": EPOCHS})
    train, validation = search_data(task)
    training = Training(TrialSpec(task=task, method="bnn", plan="BB"), train, validation)
    test, seen = load_test("digits"), []
    while not training.done:
        training.epoch()
        network = copy.deepcopy(training.model)
        seen.append((accuracy(network, validation), accuracy(network, test)))
    best = max(range(EPOCHS), key=lambda epoch: (seen[epoch][0], -epoch))
    return best + 1, *seen[best], seen[-1][1]


def test_the_test_accuracy_is_that_of_the_best_validation_epoch(tmp_path):
    result = train_recipe(recipe(), tmp_path / "best")
    epoch, validation, tested, last = by_hand()
    assert epoch < EPOCHS
    assert tested != last
    found = result.seeds[0].metrics
    assert found["best_epoch"] == epoch
    assert found["val_accuracy"] == pytest.approx(validation)
    assert found["test_accuracy"] == pytest.approx(tested)
    # 30 % of the 1,438 training examples are held out.
    assert result.train_examples == 1438 - 431
    network = bf.load(result.seeds[0].checkpoint)
    test = load_test("digits")
    assert accuracy(network, test) == pytest.approx(tested)


def test_an_interrupted_training_keeps_its_best_epoch(tmp_path):
    class CutError(Exception):
        pass

    class View:
        def start(self, recipe, seeds): ...
        def note(self, text): ...
        def stop(self): ...

        def epoch(self, report):
            if report.done == EPOCHS - 1 and report.loss is not None:
                raise CutError

    with pytest.raises(CutError):
        train_recipe(recipe(), tmp_path / "cut", progress=View())
    again = train_recipe(recipe(), tmp_path / "cut").seeds[0].metrics
    assert again == train_recipe(recipe(), tmp_path / "whole").seeds[0].metrics


def test_the_command_holds_out_a_part_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_recipe(recipe(keep="last"), tmp_path / "r.yaml")
    assert "keep" not in (tmp_path / "r.yaml").read_text().split("final:")[1].split("expected")[0]
    assert cli.main(["train", "r.yaml", "--quiet"]) == 0
    last = capsys.readouterr().out
    assert "6 epochs on 1438 examples" in " ".join(last.split())
    # The folder of the other training stays as it is.
    assert cli.main(["train", "r.yaml", "--keep", "best"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the best of 6 epochs on 1007 examples" in out
    assert ", validation 0." in out
    folders = sorted(path.name for path in tmp_path.glob("r-trained*"))
    assert len(folders) == 2
    assert folders[1].endswith("-best")
    stored = json.loads((tmp_path / folders[1] / "result.json").read_text())
    assert stored["seeds"][0]["best_epoch"] < EPOCHS
    save_recipe(recipe(), tmp_path / "best.yaml")
    assert load_recipe(tmp_path / "best.yaml").final.keep == "best"
