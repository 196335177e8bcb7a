"""Claims about the Ray trainable, used in this process without a cluster: an epoch a step, nothing
left of the trial before, faults as results, checkpoints that continue."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from bitfront.trainables.methods import METHODS
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training import evaluation
from bitfront.trainables.training.loop import DivergedError, Training
from bitfront.trainables.worker.worker import STATE_FILE, Worker, forget_dead, reason_of

pytestmark = pytest.mark.slow

DROPOUT = {"name": "mlp", "depth": 3, "width": 24, "dropout": 0.3}
IMAGES = {"name": "cresnet", "depth": 8, "width": 8}
LOCAL = {"seconds", "cpu_seconds", "worker", "resumed_from", "damaged"}
NO_METRICS = ("done", "history", "picture", "measured")


def config_of(spec: TrialSpec, folder: Path, **more: Any) -> dict[str, Any]:
    return {"spec": spec.model_dump(mode="json"), "folder": str(folder), **more}


def run(trial: Worker) -> list[dict[str, Any]]:
    results = [trial.step()]
    while not results[-1]["done"]:
        results.append(trial.step())
        assert len(results) < 20
    return results


def facts(value: Any) -> Any:
    """A result without what depends on the clock and the process."""
    if isinstance(value, dict):
        return {k: facts(v) for k, v in value.items() if k not in LOCAL}
    return [facts(v) for v in value] if isinstance(value, list) else value


def weights(trial: Worker) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in trial._training.model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(v, other[k]) for k, v in one.items())


# --- a run --------------------------------------------------------------------------------------


def test_a_step_is_an_epoch_and_the_last_one_brings_the_history(make_spec, tmp_path: Path) -> None:
    results = run(Worker(config=config_of(make_spec(), tmp_path)))
    assert [r["epoch"] for r in results] == [1, 2, 3, 4]
    assert [r["done"] for r in results] == [False, False, False, True]
    assert ["history" in r for r in results] == [False, False, False, True]
    history = results[-1]["history"]
    assert facts(history) == [
        facts({k: v for k, v in r.items() if k not in NO_METRICS}) for r in results
    ]
    assert all(r["worker"] == os.getpid() and r["resumed_from"] == 0 for r in results)


def test_a_result_is_json(make_spec, tmp_path: Path) -> None:
    results = run(Worker(config=config_of(make_spec("bnn++"), tmp_path)))
    assert json.loads(json.dumps(results[-1])) == results[-1]


def test_ray_can_drive_it(make_spec, tmp_path: Path) -> None:
    trial = Worker(config=config_of(make_spec(epochs=2), tmp_path))
    results = [trial.train(), trial.train()]
    assert [r["training_iteration"] for r in results] == [1, 2]
    assert [r["done"] for r in results] == [False, True]
    trial.stop()


def test_what_is_no_worker_of_ray_keeps_its_output(make_spec, tmp_path: Path) -> None:
    """A trial in the user's own process prints to the user's own file."""
    run(Worker(config=config_of(make_spec(epochs=1), tmp_path, log_mb=1e-6)))
    assert not ray.is_initialized()
    assert "bitfront-log" not in [thread.name for thread in threading.enumerate()]


def test_the_results_are_those_of_training(make_spec, start, finish, tmp_path: Path) -> None:
    spec = make_spec("bnn++")
    trial = Worker(config=config_of(spec, tmp_path))
    results = run(trial)
    training = finish(start(spec))
    assert facts(results[-1]["history"]) == facts(training.history)
    assert same(weights(trial), training.model.state_dict())


# --- reuse --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_after", [1, None], ids=["stopped", "finished"])
def test_nothing_of_the_trial_before_survives(make_spec, tmp_path: Path, stop_after) -> None:
    before = make_spec("bnn++", "B", model=IMAGES, augmentation="crop-flip", seed=5, epochs=2)
    spec = make_spec("bnn++", "W", model=DROPOUT)
    alone = Worker(config=config_of(spec, tmp_path / "alone"))
    expected = run(alone)

    reused = Worker(config=config_of(before, tmp_path / "before"))
    if stop_after:
        reused.step()
    else:
        run(reused)
    assert reused.reset_config(config_of(spec, tmp_path / "after"))
    assert facts(run(reused)) == facts(expected)
    assert same(weights(reused), weights(alone))


LEVELS = [(name, level) for name in METHODS for level in METHODS.get(name).levels if level != "F"]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_no_method_leaves_a_trace_in_the_actor(make_spec, tmp_path: Path, name, level) -> None:
    """The same network under the same method again, after another seed and another method."""
    spec = make_spec(name, level, model=DROPOUT, epochs=1)
    expected = run(Worker(config=config_of(spec, tmp_path / "alone")))
    reused = Worker(config=config_of(make_spec(name, level, seed=3, epochs=1), tmp_path / "seed"))
    run(reused)
    for number, other in enumerate((make_spec("react", "A", epochs=1), spec)):
        reused.reset_config(config_of(other, tmp_path / str(number)))
        results = run(reused)
    assert facts(results) == facts(expected)


def test_a_failed_trial_leaves_a_usable_actor(make_spec, tmp_path: Path) -> None:
    trial = Worker(config=config_of(make_spec(plan="XX"), tmp_path / "bad"))
    assert trial.step()["failure"] == "error"
    trial.reset_config(config_of(make_spec(), tmp_path / "good"))
    results = run(trial)
    assert len(results) == 4
    assert "failure" not in results[-1]


# --- faults -------------------------------------------------------------------------------------


def test_divergence_is_a_result_with_the_reason_nan(make_spec, tmp_path: Path) -> None:
    spec = make_spec(optimizer={"name": "sgd", "lr": 1e30})
    (result,) = run(Worker(config=config_of(spec, tmp_path)))
    assert result["failure"] == "nan"
    assert "not finite in epoch 1" in result["message"]
    assert not (tmp_path / STATE_FILE).exists()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "oom"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "oom"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), "oom"),
        (DivergedError("the loss"), "nan"),
        (RuntimeError("shapes do not match"), "error"),
        (KeyError("x"), "error"),
    ],
)
def test_a_fault_in_an_epoch_is_a_result_with_its_reason(
    make_spec, tmp_path: Path, monkeypatch, error: Exception, reason: str
) -> None:
    def fail(self: Training) -> None:
        raise error

    trial = Worker(config=config_of(make_spec(), tmp_path))
    trial.step()
    monkeypatch.setattr(Training, "epoch", fail)
    result = trial.step()
    assert result["done"]
    assert result["failure"] == reason == reason_of(error)
    assert type(error).__name__ in result["message"]
    assert "in fail" in result["traceback"]
    assert json.dumps(result)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plan": "FF" * 5}, "has 10 letters"),
        ({"method": "bnn+++"}, "did you mean 'bnn++'"),
        ({"params": {"mo": 1}}, "bnn.mo: unknown key"),
        ({"seeed": 1}, "seeed"),
    ],
)
def test_a_fault_in_setting_up_is_a_result_with_a_message(make_spec, tmp_path, change, message):
    config = config_of(make_spec(), tmp_path)
    config["spec"] |= change
    (result,) = run(Worker(config=config))
    assert result["failure"] == "error"
    assert message in result["message"]


def test_missing_data_is_a_result_with_a_message(make_spec, tmp_path: Path) -> None:
    spec = make_spec(dataset="mnist", data_dir=str(tmp_path / "nowhere"))
    (result,) = run(Worker(config=config_of(spec, tmp_path)))
    assert result["failure"] == "error"
    assert "nowhere" in result["message"]


def test_a_network_that_does_not_end_binary_fails(make_spec, tmp_path: Path, monkeypatch) -> None:
    trial = Worker(config=config_of(make_spec("bnn++", epochs=2), tmp_path))
    trial.step()
    trial._training.method.annealed.as_trained = True
    monkeypatch.setattr(evaluation, "_quality_as_trained", lambda run, part: 0.0)
    result = trial.step()
    assert result["failure"] == "error"
    assert "is not binary" in result["message"]


# --- checkpoints --------------------------------------------------------------------------------


def test_a_checkpoint_is_there_after_each_epoch_that_another_follows(make_spec, tmp_path) -> None:
    trial = Worker(config=config_of(make_spec(), tmp_path))
    assert not (tmp_path / STATE_FILE).exists()
    for epoch in (1, 2, 3):
        trial.step()
        state = torch.load(tmp_path / STATE_FILE, weights_only=True)
        assert state["epochs_done"] == epoch
        assert [p.name for p in tmp_path.iterdir()] == [STATE_FILE]
    assert trial.step()["done"]


def test_checkpoints_can_be_every_n_epochs(make_spec, tmp_path: Path) -> None:
    trial = Worker(config=config_of(make_spec(epochs=5), tmp_path, checkpoint_every=2))
    kept = []
    for _ in range(4):
        trial.step()
        path = tmp_path / STATE_FILE
        kept.append(torch.load(path, weights_only=True)["epochs_done"] if path.exists() else 0)
    assert kept == [0, 2, 2, 4]


@pytest.mark.parametrize("model", [DROPOUT, IMAGES], ids=["mlp", "cresnet"])
def test_a_new_trial_continues_from_the_folder(make_spec, tmp_path: Path, model: dict) -> None:
    spec = make_spec("bnn++", model=model)
    whole = Worker(config=config_of(spec, tmp_path / "whole"))
    expected = run(whole)
    killed = Worker(config=config_of(spec, tmp_path / "killed"))
    killed.step()
    killed.step()
    torch.manual_seed(0)
    again = Worker(config=config_of(spec, tmp_path / "killed"))
    results = run(again)
    assert [r["epoch"] for r in results] == [3, 4]
    assert [r["resumed_from"] for r in results] == [2, 2]
    # The first result after a resume tells all the driver may have missed.
    assert facts(results[0].pop("history")) == facts(expected[-1]["history"][:3])
    assert facts(results) == facts(expected[2:])
    assert same(weights(again), weights(whole))


def test_a_trial_killed_before_its_last_report_reports_it(make_spec, tmp_path: Path) -> None:
    spec = make_spec()
    expected = run(Worker(config=config_of(spec, tmp_path)))[-1]
    (result,) = run(Worker(config=config_of(spec, tmp_path)))
    assert result["resumed_from"] == 3
    assert facts(result) == facts(expected)


def test_a_damaged_checkpoint_means_starting_over(make_spec, tmp_path: Path) -> None:
    spec = make_spec()
    expected = run(Worker(config=config_of(spec, tmp_path / "whole")))
    (tmp_path / STATE_FILE).write_bytes(b"damaged")
    results = run(Worker(config=config_of(spec, tmp_path)))
    assert results[0]["resumed_from"] == 0
    assert facts(results) == facts(expected)


def test_rays_own_checkpoints_continue_too(make_spec, tmp_path: Path) -> None:
    spec = make_spec("bnn++", model=DROPOUT)
    whole = Worker(config=config_of(spec, tmp_path / "whole"))
    whole.step()
    (tmp_path / "ray").mkdir()
    whole.save_checkpoint(str(tmp_path / "ray"))
    expected = run(whole)
    other = Worker(config=config_of(spec, tmp_path / "other"))
    other.load_checkpoint(str(tmp_path / "ray"))
    assert facts(run(other)) == facts(expected)


def test_threads_are_those_granted(make_spec, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        Worker(config=config_of(make_spec(), tmp_path, threads=2)).step()
        assert torch.get_num_threads() == 2
        Worker(config=config_of(make_spec(), tmp_path)).step()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


# --- files --------------------------------------------------------------------------------------


def test_the_next_trial_of_a_worker_deletes_the_checkpoint_of_the_one_before(
    make_spec, tmp_path: Path
) -> None:
    """On a disk of its own, where the driver cannot."""
    trial = Worker(config=config_of(make_spec(epochs=2), tmp_path / "one"))
    run(trial)
    assert (tmp_path / "one" / STATE_FILE).exists()
    trial.cleanup()
    assert (tmp_path / "one" / STATE_FILE).exists(), "an interrupted trial wants it"
    trial.reset(config_of(make_spec(epochs=2, seed=1), tmp_path / "two"))
    assert not (tmp_path / "one").exists()


def test_files_of_workers_that_were_killed_are_deleted_by_the_next_one(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    for process in (ended.pid, os.getpid()):
        (tmp_path / str(process)).mkdir()
    forget_dead(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())]


def test_a_trial_that_rests_at_a_rung_keeps_its_checkpoint_and_goes_on(
    make_spec, tmp_path: Path
) -> None:
    whole = run(Worker(config=config_of(make_spec(), tmp_path / "whole")))
    rare: dict[str, Any] = {"rungs": [2], "checkpoint_every": 10**9}
    trial = Worker(config=config_of(make_spec(), tmp_path / "one", **rare))
    trial.step()
    result = trial.step()
    state = tmp_path / "one" / STATE_FILE
    assert result["kept_bytes"] == state.stat().st_size
    trial.reset_config(config_of(make_spec(), tmp_path / "two", **rare))
    assert state.exists()
    # Past the rung a trial leaves nothing, and the one that rested goes on after it.
    for _ in range(3):
        trial.step()
    assert (tmp_path / "two" / STATE_FILE).exists()
    trial.reset_config(config_of(make_spec(), tmp_path / "one", **rare))
    assert not (tmp_path / "two" / STATE_FILE).exists()
    results = run(trial)
    assert [r["epoch"] for r in results] == [3, 4]
    assert facts(results[-1]["history"]) == facts(whole[-1]["history"])
