"""Claims about where trials start: phases that follow one another, pretraining done once and
shared, also by workers that are killed, and checkpoints that fit or say why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bitfront.trainables.errors import UserError
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.pcpp import BinaryConnect
from bitfront.trainables.training import pretraining
from bitfront.trainables.training.checkpoint_files import (
    file_digest,
    load_weights,
    read_checkpoint,
    weights_of,
)
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.pretraining import (
    PretrainedCache,
    binary_pretraining_spec,
    check_checkpoint,
    load_starting_weights,
    pretraining_spec,
)
from bitfront.trainables.training.schedules import phases
from bitfront.trainables.training.schedules.phases import Phase
from bitfront.trainables.worker.worker import Worker
from testbed import warm

pytestmark = pytest.mark.slow

STAGE = {"pretrain": {"epochs": 3}}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(v, other[k]) for k, v in one.items())


def facts(history: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in history]


# --- phases -------------------------------------------------------------------------------------


def test_an_epoch_belongs_to_one_phase() -> None:
    both = [Phase("a", 2), Phase("b", 3)]
    assert [phases.locate(both, e) for e in range(5)] == [(0, 0), (0, 0), (1, 2), (1, 2), (1, 2)]
    with pytest.raises(ValueError, match="beyond the 5 epochs"):
        phases.locate(both, 5)


@pytest.mark.parametrize("shares", [(2, 1), (4, 0), (5, -1)])
def test_phases_share_out_the_epochs(shares: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="do not share out 4 epochs"):
        phases.check([Phase(str(n), n) for n in shares], 4)


class TwoPhases(BinaryConnect):
    """Full-precision weights of the last layer move in the first phase only."""

    best = False

    def phases(self, epochs: int) -> Sequence[Phase]:
        return [Phase("warm", epochs // 2), Phase("frozen", epochs - epochs // 2, best=self.best)]

    def enter(self, phase: Phase) -> None:
        self.layers[-1].latent.requires_grad_(phase.name == "warm")

    def before_step(self, fraction: float) -> None:
        super().before_step(fraction)
        self.fractions = [*getattr(self, "fractions", []), fraction]


@pytest.fixture
def two_phases(monkeypatch):
    monkeypatch.setitem(METHODS._items, "bc", TwoPhases)


def test_schedules_and_optimizer_begin_anew_in_each_phase(two_phases, make_spec, start) -> None:
    training = start(make_spec("bc", "W"))
    for _ in range(2):
        training.epoch()
    last = training.network.binary[-1].latent.detach().clone()
    first_optimizer = training.optimizer
    for _ in range(2):
        training.epoch()
    assert training.optimizer is not first_optimizer
    steps = int(next(iter(training.optimizer.state.values()))["step"])
    assert steps == 2 * len(training.batches) == 10
    halves = training.method.fractions[:10], training.method.fractions[10:]
    for fractions in halves:
        assert fractions == pytest.approx([t / 9 for t in range(10)])
    assert torch.equal(training.network.binary[-1].latent, last)


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_run_interrupted_in_any_phase_ends_the_same(
    two_phases, monkeypatch, make_spec, start, finish, tmp_path: Path, epochs: int, best: bool
) -> None:
    monkeypatch.setattr(TwoPhases, "best", best)
    spec = make_spec("bc", "W")
    whole = start(spec)
    for _ in range(epochs):
        whole.epoch()
    save_state(whole, tmp_path / "state.pt")
    finish(whole)
    torch.manual_seed(7)
    resumed = start(spec)
    assert load_state(resumed, tmp_path / "state.pt")
    finish(resumed)
    assert facts(resumed.history) == facts(whole.history)
    assert same(resumed.model.state_dict(), whole.model.state_dict())


def test_a_phase_can_begin_with_the_best_weights_of_the_one_before(
    two_phases, monkeypatch, make_spec, start
) -> None:
    monkeypatch.setattr(TwoPhases, "best", True)
    training = start(make_spec("bc", "W"))
    training.epoch()
    kept = weights_of(training.model)
    training.history[-1]["val_accuracy"] = training.best["quality"] = 2.0
    training.epoch()
    assert not same(weights_of(training.model), kept)
    training._begin_phase(1)
    assert same(weights_of(training.model), kept)


# --- pretraining --------------------------------------------------------------------------------


def test_a_stage_knows_nothing_of_the_trial(make_spec) -> None:
    one = make_spec("bnn", "B", seed=1, **STAGE)
    other = make_spec("bc", "W", seed=2, binarize="all", epochs=9, **STAGE)
    before = pretraining_spec(one)
    assert before is not None
    assert (before.method, set(before.plan), before.seed, before.task.epochs) == ("fp", {"F"}, 0, 3)
    assert before == pretraining_spec(other)
    assert pretraining_spec(make_spec()) is None


def test_a_settled_stage_does_not_change_with_the_trials_settings(make_spec) -> None:
    from bitfront.trainables.task import with_overrides

    spec = make_spec(**STAGE)
    changed = {"optimizer.lr": 0.5, "loss.label_smoothing": 0.1, "batch_size": 16}

    def stage_of(task):
        return pretraining_spec(spec.model_copy(update={"task": task}))

    settled = spec.task.with_settled_pretraining()
    assert stage_of(with_overrides(settled, changed)) == stage_of(settled)
    assert stage_of(with_overrides(spec.task, changed)) != stage_of(spec.task)
    own = make_spec(pretrain={"epochs": 3, "optimizer": "sgd", "batch_size": 8})
    assert pretraining_spec(own).task.optimizer.name == "sgd"
    assert pretraining_spec(own).task.batch_size == 8


def test_end_to_end_trials_keep_their_ids(make_spec) -> None:
    """Ids of before there was pretraining, a teacher, an attack, a choice of pixel statistics or
    code of the user's own: ledgers of that time can be continued."""
    spec = make_spec()
    content = spec.canonical().model_dump(mode="json")
    for key in ("data", "keep_full", "activations", "metrics", "measure_train"):
        del content["task"][key]
    del content["task"]["data_dir"], content["task"]["pretrain"]
    del content["task"]["normalize"], content["task"]["loss"]["distill"], content["task"]["keep"]
    del content["task"]["attack"], content["task"]["optimizer"]["nesterov"]
    import hashlib

    text = json.dumps(["s", content], sort_keys=True)
    assert spec.fingerprint("s") == hashlib.sha256(text.encode()).hexdigest()[:8]
    assert make_spec(**STAGE).fingerprint() != spec.fingerprint()


def test_where_a_checkpoint_lies_is_no_part_of_the_id(make_spec) -> None:
    def id_of(path: str, digest: str | None, epochs: int = 0) -> str:
        given = {"checkpoint": path, "sha256": digest, "epochs": epochs}
        return make_spec(pretrain=given).fingerprint()

    for epochs in (0, 2):
        assert id_of("a.pt", "11", epochs) == id_of("b.pt", "11", epochs)
        assert id_of("a.pt", "11", epochs) != id_of("a.pt", "22", epochs)
    assert id_of("a.pt", None) != id_of("b.pt", None)


def test_a_trial_starts_from_the_weights_of_the_stage(make_spec, start, finish, tmp_path) -> None:
    spec = make_spec("bnn", "W", **STAGE)
    before = finish(start(pretraining_spec(spec)))
    training = start(spec, pretrained=PretrainedCache(tmp_path))
    training._begin_phase(0)
    assert same(weights_of(training.model), weights_of(before.model))
    # the signs of full-precision weights, not those of the random ones
    latent = training.network.binary[0].latent
    assert torch.equal(latent, before.model.layers[1].weight)


@pytest.mark.parametrize("level", ["W", "B"])
def test_all_trials_share_one_stage_and_do_not_notice_who_trained_it(
    make_spec, start, finish, tmp_path: Path, monkeypatch, level: str
) -> None:
    trained = []
    original = pretraining.pretrain
    monkeypatch.setattr(
        pretraining, "pretrain", lambda *a, **k: trained.append(1) or original(*a, **k)
    )
    cache = PretrainedCache(tmp_path)
    model = {"model": {"name": "mlp", "depth": 3, "width": 24, "dropout": 0.3}}
    spec = make_spec("bnn", level, **model, **STAGE)
    runs = [finish(start(spec, pretrained=c)) for c in (cache, cache, None)]
    assert len(trained) == 2  # by the first one, and by the one without a cache
    for run in runs[1:]:
        assert facts(run.history) == facts(runs[0].history)
        assert same(run.model.state_dict(), runs[0].model.state_dict())
    finish(start(make_spec("bc", level, **model, **STAGE), pretrained=cache))
    assert len(trained) == 2
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert not list(tmp_path.glob("*.state"))
    assert not list(tmp_path.glob("*.part*"))


def test_fine_tuning_is_ahead_of_training_from_scratch(make_spec, start, tmp_path: Path) -> None:
    def first_epoch(**more) -> float:
        spec = make_spec("bnn", "W", subset=None, **more)
        return start(spec, pretrained=PretrainedCache(tmp_path)).epoch()["train_loss"]

    assert first_epoch(pretrain=8) < 0.7 * first_epoch()


def test_other_data_or_settings_are_another_stage(make_spec, tmp_path: Path) -> None:
    cache = PretrainedCache(tmp_path)

    def path(examples: slice | None = None, **more) -> Path:
        spec = pretraining_spec(make_spec(**(STAGE | more)))
        train, _ = search_data(spec.task)
        if examples is not None:
            train = train.subset(torch.arange(len(train))[examples])
        return cache.path(spec, train)

    base = path()
    assert path() == base
    assert path(data_dir="/elsewhere") == base
    others = [
        path(slice(None, -1)),
        path(pretrain={"epochs": 4}),
        path(pretrain={"epochs": 3, "seed": 1}),
        path(batch_size=16),
        path(optimizer={"lr": 0.1}),
        path(split_seed=1),
        path(model={"name": "mlp", "depth": 3, "width": 25}),
    ]
    assert len({base, *others}) == len(others) + 1


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_stage_is_trained_again(make_spec, start, finish, tmp_path, damage) -> None:
    spec = make_spec("bnn", "W", **STAGE)
    expected = finish(start(spec, pretrained=PretrainedCache(tmp_path)))
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    again = finish(start(spec, pretrained=PretrainedCache(tmp_path)))
    assert facts(again.history) == facts(expected.history)


def test_a_resumed_trial_needs_no_stage(make_spec, start, finish, tmp_path, monkeypatch) -> None:
    spec = make_spec("bnn", "W", **STAGE)
    whole = start(spec, pretrained=PretrainedCache(tmp_path / "pretrained"))
    whole.epoch()
    save_state(whole, tmp_path / "state.pt")
    finish(whole)

    def fail(*args, **kwargs):
        raise AssertionError("the pretraining was asked for")

    monkeypatch.setattr(pretraining, "pretrain", fail)
    resumed = start(spec, pretrained=PretrainedCache(tmp_path / "elsewhere"))
    assert load_state(resumed, tmp_path / "state.pt")
    finish(resumed)
    assert facts(resumed.history) == facts(whole.history)


def test_an_interrupted_stage_is_taken_over(make_spec, start, finish, tmp_path: Path) -> None:
    spec = make_spec("bnn", "W", **STAGE)
    before = pretraining_spec(spec)
    train, validation = search_data(before.task)
    cache = PretrainedCache(tmp_path)
    begun = Training(before, train, validation, validate_each_epoch=False)
    begun.epoch()
    begun.epoch()
    state = cache.path(before, train).with_suffix(".state")
    save_state(begun, state)
    epochs = []
    original = Training.epoch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "epoch", lambda self: epochs.append(1) or original(self))
        taken_over = cache.weights(Training, before, train, validation, torch.device("cpu"))
    assert len(epochs) == 1
    assert same(taken_over, weights_of(finish(start(before)).model))


WORKER = """
import json, os, sys
from pathlib import Path
import torch
from bitfront.trainables.training import pretraining
from bitfront.trainables.training.pretraining import PretrainedCache, pretraining_spec
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data

spec = TrialSpec.model_validate_json(sys.argv[1])
before = pretraining_spec(spec)
original = Training.epoch
def epoch(self):
    print("epoch", flush=True)
    result = original(self)
    if sys.argv[3] == "stall" and self.epochs_done == 2:
        print("stalled", flush=True)
        sys.stdin.readline()
    return result
Training.epoch = epoch
torch.set_num_threads(1)
print(os.getpid(), flush=True)
sys.stdin.readline()
cache = PretrainedCache(Path(sys.argv[2]))
w = cache.weights(Training, before, *search_data(before.task), torch.device("cpu"))
print("done", float(sum(t.double().abs().sum() for t in w.values())), flush=True)
"""


def test_of_two_workers_one_trains_and_the_other_takes_over_when_it_is_killed(
    make_spec, tmp_path: Path
) -> None:
    spec = make_spec("bnn", "W", pretrain=4)

    def worker(how: str) -> tuple[subprocess.Popen, int]:
        """A process, and the id of the one that is forked for it."""
        process = subprocess.Popen(
            [warm.python(), "-c", WORKER, spec.model_dump_json(), str(tmp_path), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, int(process.stdout.readline())

    (first, _), (second, waiting) = worker("stall"), worker("go")
    try:
        first.stdin.write("\n")
        first.stdin.flush()
        assert [first.stdout.readline() for _ in range(3)] == ["epoch\n", "epoch\n", "stalled\n"]
        second.stdin.write("\n")
        second.stdin.flush()
        deadline = time.monotonic() + 60
        while not _waits_for_a_lock(waiting) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert _waits_for_a_lock(waiting)
        os.kill(first.pid, signal.SIGKILL)
        said = second.stdout.read().splitlines()
        # One of the four epochs was checkpointed before the kill: three are left.
        assert said[:-1] == ["epoch"] * 3
        assert said[-1].startswith("done ")
        assert len(list(tmp_path.glob("*.safetensors"))) == 1
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def _waits_for_a_lock(pid: int) -> bool:
    return any(
        line.split()[1] == "->" and line.split()[5] == str(pid)
        for line in Path("/proc/locks").read_text().splitlines()
    )


# --- checkpoints --------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(make_spec, start, tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """A state dict of the network the tests train, as torch writes it."""
    model = start(make_spec("fp", "F", seed=5)).model
    path = tmp_path / "weights.pt"
    torch.save(model.state_dict(), path)
    return path, {k: v.clone() for k, v in model.state_dict().items()}


@pytest.mark.parametrize("form", ["plain", "module", "nested", "compiled", "safetensors"])
def test_state_dicts_are_read_as_scripts_write_them(checkpoint, tmp_path, form: str) -> None:
    path, state = checkpoint
    if form == "module":
        torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}, "epoch": 3}, path)
    elif form == "nested":
        torch.save({"model": {"state_dict": state}, "lr": 0.1}, path)
    elif form == "compiled":
        torch.save({f"_orig_mod.{k}": v for k, v in state.items()}, path)
    elif form == "safetensors":
        path = tmp_path / "weights.safetensors"
        save_file(state, path)
    assert same(read_checkpoint(path), state)


@pytest.mark.parametrize("level", ["F", "W", "B"])
def test_a_trial_starts_from_a_checkpoint(make_spec, start, checkpoint, level: str) -> None:
    path, state = checkpoint
    method = "fp" if level == "F" else "bnn"
    training = start(make_spec(method, level, pretrain=str(path)))
    training._begin_phase(0)
    assert same(weights_of(training.model), state)
    training.epoch()


def test_a_stage_can_start_from_a_checkpoint(make_spec, start, checkpoint, tmp_path) -> None:
    path, _ = checkpoint
    pretrain = {"epochs": 2, "checkpoint": str(path)}
    losses = [
        start(
            pretraining_spec(make_spec(pretrain=p)), pretrained=PretrainedCache(tmp_path)
        ).epoch()["train_loss"]
        for p in (pretrain, {"epochs": 2})
    ]
    assert losses[0] != losses[1]


def test_what_does_not_fit_is_told(make_spec, start, checkpoint) -> None:
    _, state = checkpoint
    state["classifier.weight"] = torch.zeros(7, 24)
    del state["classifier.bias"], state["norms.0.num_batches_tracked"]
    state["head.extra"] = torch.zeros(3)
    training = start(make_spec("bnn", "W"))
    before = training.model.classifier.weight.detach().clone()
    fit = load_weights(training.model, state, "w.pt")
    assert (fit.missing, fit.unexpected) == (("classifier.bias",), ("head.extra",))
    assert fit.other_shape == ("classifier.weight",)
    assert not fit.complete
    assert torch.equal(training.model.classifier.weight, before)
    text = fit.text()
    assert "1 not in it, left at random: classifier.bias" in text
    assert "1 of another shape, left at random: classifier.weight" in text
    assert "1 in it, but not in the network: head.extra" in text


def test_weights_of_another_architecture_are_an_error(make_spec, checkpoint) -> None:
    path, _ = checkpoint
    task = make_spec(model={"name": "cresnet", "depth": 8, "width": 4}, pretrain=str(path)).task
    with pytest.raises(UserError, match="no weight of the network is in it"):
        check_checkpoint(task)


def test_a_checkpoint_is_checked_without_building_the_network(make_spec, checkpoint) -> None:
    path, state = checkpoint
    fit = check_checkpoint(make_spec(pretrain=str(path)).task)
    assert fit.complete
    assert set(fit.loaded) == set(state)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"not a checkpoint", "cannot be read as a state dict"),
        ("code", "cannot be read as a state dict"),
        ({"lr": 0.1}, "there is no state dict in it"),
        ([1, 2], "there is no state dict in it"),
    ],
)
def test_what_is_no_state_dict_is_an_error(tmp_path: Path, content, message: str) -> None:
    path = tmp_path / "w.pt"
    if content == "code":
        torch.save(Path("anything"), path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(UserError, match=message):
        read_checkpoint(path)


def test_a_packed_network_is_no_start(make_spec, start, finish, tmp_path: Path) -> None:
    from bitfront.trainables import packed

    training = finish(start(make_spec("bnn", "W", epochs=1)))
    packed.save(training.network, training.spec, tmp_path / "p.safetensors", {})
    with pytest.raises(UserError, match="a packed binary network"):
        read_checkpoint(tmp_path / "p.safetensors")


def test_another_file_under_the_same_name_is_noticed(make_spec, checkpoint) -> None:
    path, state = checkpoint
    digest = file_digest(path)
    task = make_spec(pretrain={"checkpoint": str(path), "sha256": digest}).task
    check_checkpoint(task)
    torch.save({k: v + 1 for k, v in state.items()}, path)
    with pytest.raises(UserError, match="its sha256 differs"):
        check_checkpoint(task)


# --- trials -------------------------------------------------------------------------------------


def test_ray_trials_share_a_stage_and_leave_nothing_behind(make_spec, tmp_path: Path) -> None:
    def config(spec, name: str) -> dict:
        folders = {"folder": str(tmp_path / name), "pretrained": str(tmp_path / "pretrained")}
        return {"spec": spec.model_dump(mode="json"), **folders}

    def run(trial: Worker) -> list[dict]:
        results = [trial.step()]
        while not results[-1]["done"]:
            results.append(trial.step())
        return facts(results[-1]["history"])

    tuned, scratch = make_spec("bnn", "W", **STAGE), make_spec("bnn", "W")
    alone = run(Worker(config=config(scratch, "a")))
    trial = Worker(config=config(tuned, "b"))
    first = run(trial)
    trial.reset_config(config(scratch, "c"))
    assert run(trial) == alone
    trial.reset_config(config(tuned, "d"))
    assert run(trial) == first
    assert first != alone
    assert len(list((tmp_path / "pretrained").glob("*.safetensors"))) == 1


# --- binary epochs before the trial's own -------------------------------------------------------


def test_binary_epochs_come_between_the_stage_and_the_trial(make_spec, start, finish, tmp_path):
    pretrained = PretrainedCache(tmp_path)
    spec = make_spec(pretrain={"epochs": 1, "binary_epochs": 2}, epochs=1)
    binary = binary_pretraining_spec(spec)
    assert (binary.method, binary.plan, binary.task.epochs) == (spec.method, spec.plan, 2)
    assert binary.task.pretrain.epochs == 1
    training = start(spec, pretrained=pretrained)
    load_starting_weights(training)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2, "both pretrained networks are kept"
    alone = finish(start(binary, pretrained=pretrained))
    kept = weights_of(alone.model)
    ours = weights_of(training.model)
    assert all(torch.equal(kept[name], ours[name]) for name in kept)
    plain = make_spec(pretrain={"epochs": 1}, epochs=1)
    assert spec.fingerprint() != plain.fingerprint()
    assert binary_pretraining_spec(plain) is None
