"""`bitfront train --workers`: Ray Train on CPUs, beside the same training by one process."""

import json

import pytest

from bitfront.search.recipes.final_training import train_recipe
from bitfront.search.recipes.recipe import FinalSettings, Recipe
from bitfront.search.recipes.seed_training import SeedJob
from bitfront.trainables import packed
from bitfront.trainables.data import load_test, load_train
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.checkpoints import save_state
from bitfront.trainables.training.evaluation import evaluate
from bitfront.trainables.training.loop import Training
from testbed.rig.here import ray_here

pytestmark = pytest.mark.slow

TASK = {
    "dataset": "digits",
    "model": {"name": "mlp", "depth": 4, "width": 32},
    "epochs": 4,
    "batch_size": 32,
    "optimizer": {"lr": 0.01},
}


def recipe(method, letters, epochs=4):
    spec = TrialSpec(task=Task.model_validate(TASK), method=method, plan=letters)
    return Recipe(name=method, spec=spec, final=FinalSettings(epochs=epochs, seeds=[0]))


@pytest.fixture(scope="module")
def two_cpus():
    with ray_here():
        yield


@pytest.mark.timeout(600)
def test_two_workers_reach_what_one_does(two_cpus, tmp_path):
    """With layers of either kind: full precision and binary."""
    given = recipe("bnn", "FBB")
    alone = train_recipe(given, tmp_path / "alone")
    shared = train_recipe(given, tmp_path / "shared", workers=2)
    assert abs(shared.mean - alone.mean) < 0.05
    assert alone.mean > 0.8
    assert set(shared.as_json()) == set(alone.as_json())
    files = {file.name for file in (tmp_path / "shared").iterdir()}
    assert files == {"training.json", "seed0.json", "seed0.safetensors", "result.json"}
    model, *_ = packed.load(tmp_path / "shared" / "seed0.safetensors")
    reloaded = evaluate(model, load_test("digits"))["val_accuracy"]
    assert reloaded == pytest.approx(shared.mean)
    again = []
    train_recipe(given, tmp_path / "shared", workers=2, note=again.append)
    assert "already trained" in " ".join(again)


@pytest.mark.timeout(600)
def test_workers_continue_from_the_last_epoch(two_cpus, tmp_path):
    given = recipe("bnn", "BBB", epochs=3)
    spec = given.spec.model_copy(
        update={"task": given.spec.task.model_copy(update={"epochs": 3}), "seed": 0}
    )
    job = SeedJob(given, spec, str(tmp_path), None, str(tmp_path / "pretrained"), None)
    begun = Training(spec, load_train("digits"), load_test("digits"), validate_each_epoch=False)
    begun.epoch()
    save_state(begun, job.state)
    notes = []
    train_recipe(given, tmp_path, workers=2, note=notes.append)
    assert "seed 0: continued after epoch 1" in notes
    assert not any("epoch 1/3" in note for note in notes)
    assert json.loads((tmp_path / "result.json").read_text())["epochs"] == 3


def test_more_workers_than_fit_are_refused(two_cpus, tmp_path):
    with pytest.raises(UserError, match="2 fit"):
        train_recipe(recipe("bnn", "BBB"), tmp_path, workers=4)


def test_what_a_worker_prints_fills_no_disk(two_cpus):
    import ray

    @ray.remote
    def chatty(megabytes):
        import os
        import time

        from bitfront.trainables.worker import log

        log.limit_log(5.0)
        line, most = b"x" * 999_999 + b"\n", 0
        for _ in range(megabytes):
            os.write(1, line)
            most = max(most, os.fstat(1).st_size)
            time.sleep(0.01)
        time.sleep(4 * log.LOOK_SECONDS)
        os.write(1, b"the end\n")
        return most / 1e6, os.readlink("/proc/self/fd/1")

    most, log = ray.get(chatty.remote(300))
    assert most < 150  # what half a second is enough for, and not three hundred
    with open(log, "rb") as file:
        text = file.read()
    assert len(text) < 5_100_000
    assert b"are gone (resources.log_mb: 5)" in text
    assert text.endswith(b"the end\n")
