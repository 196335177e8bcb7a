"""What a worker does with weights: a finished trial leaves them, a look begins with them."""

import pytest
import torch

from bitfront.trainables import training
from bitfront.trainables.worker.worker import Worker

PARENT = {"model": {"name": "mlp", "depth": 3, "width": 24}, "epochs": 2}


@pytest.fixture
def config_of(make_spec, tmp_path):
    """The configuration of a trial with this plan, which inherits from the trial `parent`."""

    def make(name, plan, parent=None, method="bnn"):
        spec = make_spec(method, plan=plan, **PARENT)
        config = {
            "spec": spec.model_dump(mode="json"),
            "folder": str(tmp_path / "trials" / name),
            "bequest": str(tmp_path / "weights" / name / "state.pt"),
        }
        if parent is not None:
            config["look"] = {
                "parent": parent,
                "weights": str(tmp_path / "weights" / parent / "state.pt"),
                "folder": str(tmp_path / "trials" / f"{name}-look"),
                "epochs": 1,
            }
        return config

    return make


def run(trial):
    results = [trial.step()]
    while not results[-1]["done"]:
        results.append(trial.step())
    assert "failure" not in results[-1]
    return results


def test_a_look_begins_with_the_weights_that_its_parent_left(config_of, tmp_path, monkeypatch):
    trial = Worker(config=config_of("parent", "FB"))
    run(trial)
    left = training.opened_bequest((tmp_path / "weights" / "parent" / "state.pt").read_bytes())
    begun = {}

    def stopped(run):
        begun.update(training.opened_bequest(training.bequest(run.model)))
        return 0.0

    monkeypatch.setattr(training.Training, "_train_epoch", stopped)
    trial.reset_config(config_of("child", "BF", "parent"))
    (result,) = run(trial)
    assert len(result["history"]) == 1
    assert "picture" not in result
    shared = [name for name in left if name.endswith("weight")]
    assert len(shared) > 2
    assert all(torch.equal(begun[name], left[name]) for name in shared)
    assert not (tmp_path / "weights" / "child").exists()


def test_a_trial_without_its_parents_weights_is_trained_from_scratch_and_says_so(
    config_of, tmp_path
):
    expected = run(Worker(config=config_of("alone", "BF")))[-1]["val_accuracy"]
    (tmp_path / "weights" / "damaged").mkdir()
    (tmp_path / "weights" / "damaged" / "state.pt").write_bytes(b"x" * 100)
    reasons = []
    for parent in ("gone", "damaged"):
        results = run(Worker(config=config_of(f"of-{parent}", "BF", parent)))
        assert [r["epoch"] for r in results] == [1, 2]
        assert results[-1]["val_accuracy"] == expected
        reasons.append(results[0]["not_inherited"])
    assert reasons == [
        "no weights of trial gone (they are not there): it began anew",
        "no weights of trial damaged (its checksum does not fit): it began anew",
    ]


def test_an_interrupted_look_goes_on_without_its_parent(config_of, tmp_path):
    run(Worker(config=config_of("parent", "FB")))
    config = config_of("child", "BF", "parent")
    config["look"]["epochs"] = 2
    expected = run(Worker(config=config))[-1]["val_accuracy"]
    config = config_of("again", "BF", "parent")
    config["look"]["epochs"] = 2
    Worker(config=config).step()
    (tmp_path / "weights" / "parent" / "state.pt").unlink()
    results = run(Worker(config=config))
    assert [(r["epoch"], r["resumed_from"]) for r in results] == [(2, 1)]
    assert results[-1]["val_accuracy"] == expected
    # What counts is trained from scratch, not from where the look was.
    del config["look"]
    assert [r["resumed_from"] for r in run(Worker(config=config))] == [0, 0]
