"""Claims about the training loop: rates in fractions of training, evaluation, batch-norm
statistics, divergence, and that a search never sees test data."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from bitfront.trainables.data import Arrays, load_test
from bitfront.trainables.data import datasets as datasets_module
from bitfront.trainables.data.batches import Batches
from bitfront.trainables.settings import LearningRateSpec, OptimizerSpec
from bitfront.trainables.task import Task
from bitfront.trainables.training import loop as training_module
from bitfront.trainables.training import norms, parts
from bitfront.trainables.training.evaluation import evaluate
from bitfront.trainables.training.loop import DivergedError, Training
from bitfront.trainables.training.network import device_from_resources
from bitfront.trainables.training.norms import kept_statistics, recalibrate
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.schedules.rates import LearningRate, make_optimizer


@pytest.fixture
def _empty_caches():
    caches = (parts._search_data, datasets_module._read)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


# --- the learning rate --------------------------------------------------------------------------


def rate(shape: str, passed: float, lr: float = 0.1, **fields) -> float:
    return LearningRate(lr, LearningRateSpec(shape=shape, **fields)).at(passed)


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ("constant", [0.1, 0.1, 0.1, 0.1, 0.1]),
        ("linear", [0.1, 0.075, 0.05, 0.025, 0.0]),
        ("cosine", [0.1, 0.0853553, 0.05, 0.0146447, 0.0]),
        ("steps", [0.1, 0.1, 0.01, 0.001, 0.001]),
    ],
)
def test_the_rate_follows_its_shape(shape: str, values: list[float]) -> None:
    got = [rate(shape, passed) for passed in (0, 0.25, 0.5, 0.75, 1)]
    assert got == pytest.approx(values, abs=1e-7)


def test_the_rate_ends_at_its_end_factor() -> None:
    for shape in ("linear", "cosine"):
        assert rate(shape, 1.0, end_factor=0.1) == pytest.approx(0.01)
        assert rate(shape, 0.5, end_factor=0.1) == pytest.approx(0.055)


def test_steps_are_where_and_as_large_as_asked() -> None:
    got = [rate("steps", f, at=[0.3, 0.9], factor=0.5) for f in (0.29, 0.3, 0.89, 0.9)]
    assert got == pytest.approx([0.1, 0.05, 0.05, 0.025])


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine", "steps"])
def test_the_warm_up_ramps_to_the_full_rate(shape: str) -> None:
    got = [rate(shape, f, warmup=0.2) for f in (0.0, 0.05, 0.1, 0.2)]
    assert got == pytest.approx([0.0001, 0.025, 0.05, 0.1])


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_the_decay_begins_where_the_warm_up_ends(shape: str) -> None:
    assert rate(shape, 0.6, warmup=0.2) == pytest.approx(0.05)
    assert rate(shape, 1.0, warmup=0.2) == pytest.approx(0.0, abs=1e-12)


def test_the_optimizer_gets_the_scheduled_rate_each_step(make_spec, start, finish, monkeypatch):
    spec = make_spec(schedule="linear", optimizer={"name": "sgd", "lr": 0.2})
    training = start(spec)
    used = []
    step = training.optimizer.step
    monkeypatch.setattr(
        training.optimizer,
        "step",
        lambda: (used.extend(group["lr"] for group in training.optimizer.param_groups), step()),
    )
    finish(training)
    assert used == pytest.approx([0.2 * (1 - t / 19) for t in range(20)])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)],
)
def test_the_optimizer_is_the_one_asked_for(name: str, kind: type) -> None:
    model = nn.Linear(2, 2)
    spec = OptimizerSpec(name=name, lr=0.3, weight_decay=0.01, momentum=0.7)
    optimizer = make_optimizer([model.weight], spec)
    (group,) = optimizer.param_groups
    assert type(optimizer) is kind
    assert (group["lr"], group["weight_decay"]) == (0.3, 0.01)
    assert group["params"] == [model.weight]
    if name == "sgd":
        assert group["momentum"] == 0.7


# --- evaluation and statistics ------------------------------------------------------------------


class Noisy(nn.Module):
    """Right about even labels, and random in training mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        label = x[:, 0].long()
        guess = torch.where(label % 2 == 0, label, (label + 1) % 4)
        logits = 10.0 * nn.functional.one_hot(guess, 4)
        return torch.rand_like(logits) if self.training else logits


@pytest.mark.parametrize("n", [4, 1200])
def test_evaluation_counts_every_example_once(n: int) -> None:
    y = torch.arange(n) % 4
    result = evaluate(Noisy().train(), Arrays(y.float().view(-1, 1), y))
    assert result["val_accuracy"] == 0.5
    right = math.log(1 + 3 * math.exp(-10))
    assert result["val_loss"] == pytest.approx((right + right + 10) / 2, rel=1e-4)


def normed() -> tuple[nn.Module, Arrays]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.3), nn.Dropout(0.9))
    x = torch.randn(64, 3) * 3 + 1
    return model, Arrays(x, torch.zeros(64, dtype=torch.int64))


def test_recalibration_averages_the_statistics_of_the_training_examples() -> None:
    model, arrays = normed()
    inside = model[0](arrays.x).detach()
    with torch.no_grad():
        model[1].running_mean.fill_(100.0)
    recalibrate(model, arrays, 16)
    batches = inside.split(16)
    mean = torch.stack([b.mean(0) for b in batches]).mean(0)
    var = torch.stack([b.var(0) for b in batches]).mean(0)
    torch.testing.assert_close(model[1].running_mean, mean)
    torch.testing.assert_close(model[1].running_var, var)


def test_recalibration_leaves_momentum_mode_and_weights_as_they_were() -> None:
    model, arrays = normed()
    weights = [p.detach().clone() for p in model.parameters()]
    recalibrate(model.train(), arrays, 16)
    assert model[1].momentum == 0.3
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_recalibration_survives_a_last_batch_of_one() -> None:
    model, arrays = normed()
    recalibrate(model, arrays.subset(torch.arange(33)), 16)
    assert model[1].running_mean.isfinite().all()
    assert int(model[1].num_batches_tracked) == 2


def test_recalibration_needs_no_more_than_its_share_of_the_data(monkeypatch) -> None:
    model, arrays = normed()
    monkeypatch.setattr(norms, "RECALIBRATION_EXAMPLES", 20)
    recalibrate(model, arrays, 16)
    assert int(model[1].num_batches_tracked) == 2


def test_kept_statistics_are_restored_whatever_happens() -> None:
    model, arrays = normed()
    model.train()(arrays.x)
    before = {k: v.clone() for k, v in model[1].named_buffers()}
    with kept_statistics(model):
        recalibrate(model, arrays, 16)
        assert not torch.equal(model[1].running_mean, before["running_mean"])
    broken = Arrays(arrays.x[:, :2], arrays.y)  # the linear layer takes three
    with pytest.raises(RuntimeError, match="shapes"), kept_statistics(model):
        recalibrate(model, broken, 16)
    assert set(before) == {"running_mean", "running_var", "num_batches_tracked"}
    assert all(torch.equal(v, before[k]) for k, v in model[1].named_buffers())


# --- the loop -----------------------------------------------------------------------------------


def test_training_lowers_the_loss_and_counts_its_epochs(make_spec, start) -> None:
    training = start(make_spec("bnn", "B"))
    rows = []
    while not training.done:
        rows.append(training.epoch())
    assert training.history == rows
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert all(0 <= row["val_accuracy"] <= 1 for row in rows)
    assert all(row["seconds"] > 0 and row["cpu_seconds"] > 0 for row in rows)


@pytest.mark.parametrize(("method", "level"), [("fp", "F"), ("bnn", "B"), ("bnn++", "B")])
def test_an_absurd_learning_rate_diverges_by_name(make_spec, start, finish, method, level) -> None:
    spec = make_spec(method, level, optimizer={"name": "sgd", "lr": 1e30})
    with pytest.raises(DivergedError, match="not finite in epoch 1"):
        finish(start(spec))


def test_a_weight_that_is_no_number_is_noticed_even_if_the_loss_is_one(make_spec, start) -> None:
    training = start(make_spec("fp", "F"))
    training.model.register_parameter("unused", nn.Parameter(torch.tensor([math.nan])))
    with pytest.raises(DivergedError):
        training.epoch()


@pytest.mark.parametrize(("method", "level"), [("fp", "F"), ("bnn", "B"), ("bnn++", "B")])
def test_bf16_trains(make_spec, start, finish, method: str, level: str) -> None:
    spec = make_spec(method, level, precision="bf16", subset=600)
    training = start(spec)
    seen = set()
    training.model.layers[1].register_forward_hook(lambda m, args, out: seen.add(out.dtype))
    training.epoch()
    assert seen == {torch.bfloat16, torch.float32}  # training; evaluation
    finish(training)
    assert training.history[-1]["val_accuracy"] > 0.4
    assert all(p.dtype == torch.float32 for p in training.model.parameters())
    training.network.verify()
    full = finish(start(make_spec(method, level, subset=600)))
    assert full.history[-1]["train_loss"] != training.history[-1]["train_loss"]


def test_label_smoothing_changes_the_loss(make_spec, start) -> None:
    plain, smooth = (
        start(make_spec(epochs=1, loss={"label_smoothing": s})).epoch() for s in (0.0, 0.2)
    )
    assert plain["train_loss"] != smooth["train_loss"]


@pytest.mark.parametrize(
    ("dataset", "augmentation", "expected"),
    [("digits", "default", "none"), ("digits", "crop-flip", "crop-flip")],
)
def test_default_augmentation_is_the_datasets_own(
    make_spec, start, monkeypatch, dataset, augmentation, expected
) -> None:
    asked = []
    original = Batches
    monkeypatch.setattr(
        training_module,
        "Batches",
        lambda *args, **more: (asked.append(args[3]), original(*args, **more))[1],
    )
    start(make_spec(dataset=dataset, augmentation=augmentation))
    assert asked == [expected]


def test_a_cpu_is_used_when_no_gpu_was_granted() -> None:
    assert device_from_resources(0).type == "cpu"


# --- data ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_empty_caches")
@pytest.mark.parametrize("dataset", ["digits", "moons"])
def test_a_search_never_reads_test_data(monkeypatch, make_spec, start, finish, dataset) -> None:
    read = datasets_module._read

    def guarded(name, part, data_dir):
        if part == "test":
            raise AssertionError("test data was read")
        return read(name, part, data_dir)

    monkeypatch.setattr(datasets_module, "_read", guarded)
    with pytest.raises(AssertionError, match="test data was read"):
        load_test(dataset)
    finish(start(make_spec("bnn++", "B", dataset=dataset, epochs=2)))


def rows(arrays: Arrays) -> set[bytes]:
    return {x.numpy().tobytes() for x in arrays.x}


def test_train_and_validation_are_disjoint_from_each_other_and_from_the_test_part() -> None:
    train, validation = search_data(Task(dataset="moons", model={"name": "mlp"}))
    test = load_test("moons")
    assert (len(train), len(validation)) == (640, 160)
    assert not rows(train) & rows(validation)
    assert not (rows(train) | rows(validation)) & rows(test)


def test_the_subset_is_honoured() -> None:
    task = {"dataset": "moons", "model": {"name": "mlp"}, "val_fraction": 0.25}
    everything = rows(search_data(Task(**task))[0]) | rows(search_data(Task(**task))[1])
    train, validation = search_data(Task(**task, subset=100))
    assert (len(train), len(validation)) == (75, 25)
    assert rows(train) | rows(validation) < everything
    larger = search_data(Task(**task, subset=100_000))
    assert sum(map(len, larger)) == 800


def test_the_split_seed_moves_the_split_and_the_trial_seed_does_not(make_spec, start) -> None:
    one, other_trial = (start(make_spec(seed=seed)) for seed in (0, 1))
    assert torch.equal(one.validation.x, other_trial.validation.x)
    other_split = start(make_spec(split_seed=1))
    assert not torch.equal(one.validation.x, other_split.validation.x)


def test_training_leaves_the_shared_data_alone(make_spec, finish) -> None:
    spec = make_spec(augmentation="crop-flip", model={"name": "cresnet", "depth": 8, "width": 4})
    train: Any
    validation: Any
    train, validation = search_data(spec.task)
    before = train.x.clone(), validation.x.clone()
    finish(Training(spec, train, validation))
    assert torch.equal(train.x, before[0])
    assert torch.equal(validation.x, before[1])


# --- the epoch that is kept ---------------------------------------------------------------------

# Rises, then is thrown off: the last epoch is not the best one.
THROWN_OFF = {"epochs": 6, "schedule": {"shape": "constant"}, "optimizer": {"lr": 0.5}}


@pytest.mark.parametrize("name", ["bnn", "bnn++", "bayesbinn", "edge-popup"])
def test_a_trial_can_end_with_its_best_epoch(make_spec, start, finish, name: str) -> None:
    level = "W" if name == "edge-popup" else "B"
    params = {"bayesbinn": {"lr": 1e-2}, "edge-popup": {"rate": 0.5}}.get(name, {})
    last, best = (
        finish(start(make_spec(name, level, params=params, keep=keep, **THROWN_OFF)))
        for keep in ("last", "best")
    )
    curve = [row["val_accuracy"] for row in last.history]
    assert [row["val_accuracy"] for row in best.history[:-1]] == curve[:-1]
    end = best.history[-1]
    assert end["val_accuracy"] == max(curve)
    assert end["best_epoch"] == curve.index(max(curve)) + 1
    assert "best_epoch" not in last.history[-1]
    best.network.verify()
    assert best.evaluate()["val_accuracy"] == max(curve)


def test_the_best_epoch_survives_an_interruption(make_spec, start, finish) -> None:
    spec = make_spec("bnn", keep="best", **THROWN_OFF)
    whole, first = finish(start(spec)), start(spec)
    for _ in range(5):
        first.epoch()
    second = start(spec)
    second.load_state_dict(first.state_dict())
    finish(second)
    for key, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[key], value)
    assert second.history[-1]["best_epoch"] == whole.history[-1]["best_epoch"]


def test_under_attack_the_best_epoch_is_the_most_robust_one(make_spec, start, finish) -> None:
    attack = {"eps": 0.1, "steps": 2, "evaluate": ["pgd10"]}
    training = finish(start(make_spec("bnn", "W", attack=attack, keep="best", **THROWN_OFF)))
    curve = [row["val_robust_pgd10"] for row in training.history]
    assert curve[-1] == max(curve)
    assert curve.index(max(curve)) + 1 == training.history[-1]["best_epoch"]


def test_final_training_has_nothing_to_choose_by(make_spec, start, finish) -> None:
    spec = make_spec("bnn", keep="best", **THROWN_OFF)
    training = finish(start(spec, validate_each_epoch=False))
    assert "best_epoch" not in training.history[-1]
