"""Claims about tasks beyond classification: regression, points with a picture of the predictions,
and several tasks in a row with the posterior of one as the prior of the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bitfront.dashboards.figures.networks.predictions import predictions_figure, predictions_html
from bitfront.trainables.data import DATASETS, TaskRow, load_train, split
from bitfront.trainables.errors import UserError
from bitfront.trainables.tasks import kind_of
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.pictures import predictions

MOONS = {
    "dataset": "moons",
    "model": {"name": "tanh-mlp", "width": 32},
    "epochs": 60,
    "batch_size": 50,
    "subset": 250,
    "binarize": "all",
}
BAYES = {"lr": 3e-2, "tau": 1.0, "momentum": 0.9, "lam_init": 2.0, "mean_samples": 10}


@pytest.fixture
def snelson(tmp_path: Path) -> str:
    """Files of the layout of Snelson's, a noisy sine."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, 200)
    y = np.sin(2 * x) * 0.85 - 0.36 + 0.1 * rng.normal(size=200)
    (tmp_path / "snelson").mkdir()
    np.savetxt(tmp_path / "snelson" / "train_inputs", x)
    np.savetxt(tmp_path / "snelson" / "train_outputs", y)
    return str(tmp_path)


@pytest.fixture
def permuted(monkeypatch) -> str:
    """Digits as three tasks in a row."""
    info = replace(DATASETS.get("digits"), name="permuted-digits", kind="continual", tasks=3)
    monkeypatch.setitem(DATASETS._items, "permuted-digits", info)
    return "permuted-digits"


# --- regression ---------------------------------------------------------------------------------


def test_a_regression_is_learned_and_measured_in_deviations(make_spec, start, finish, snelson):
    spec = make_spec(
        "ste-adam",
        "W",
        dataset="snelson",
        data_dir=snelson,
        model={"name": "tanh-mlp", "width": 64, "norm_output": True},
        epochs=150,
        batch_size=50,
        subset=None,
        params={"lr": 0.02},
        binarize="all",
    )
    training = finish(start(spec, validate_each_epoch=False))
    training.network.verify()
    last = training.history[-1]
    assert last["val_rmse"] == pytest.approx(last["val_loss"] ** 0.5)
    # Predicting the mean is 1; a straight line through a sine is hardly better.
    assert last["val_rmse"] < 0.9
    assert kind_of("snelson").chance("val_rmse", DATASETS.get("snelson")) == 1.0


def test_numbers_are_split_by_chance_and_not_by_size(snelson) -> None:
    train, val = split(load_train("snelson", snelson), 0.2, 0)
    assert (len(train), len(val)) == (144, 36)
    assert val.y.min() < train.y.median() < val.y.max()
    again = split(load_train("snelson", snelson), 0.2, 0)[1]
    assert torch.equal(val.y, again.y)


def test_missing_or_short_files_of_snelson_are_told(snelson, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'snelson' not found"):
        load_train("snelson", tmp_path / "nowhere")
    np.savetxt(tmp_path / "snelson" / "train_outputs", [1.0, 2.0])
    from bitfront.trainables.data import datasets

    datasets._read.cache_clear()
    with pytest.raises(UserError, match="200 inputs but 2 targets"):
        load_train("snelson", snelson)


# --- pictures -----------------------------------------------------------------------------------


def test_bayesbinn_learns_two_moons_and_shows_how_sure_it_is(make_spec, start, finish) -> None:
    spec = make_spec("bayesbinn", "W", params=BAYES, **MOONS)
    training = finish(start(spec, validate_each_epoch=False))
    # 240 steps; the paper makes 3000 (benchmarks/optimizers.py moons).
    assert training.history[-1]["val_accuracy"] >= 0.7
    assert training.history[-1]["val_accuracy_mean"] >= 0.7
    picture = predictions(training)
    assert [len(axis) for axis in picture["axes"]] == [60, 60]
    assert {len(picture[key]) for key in ("mode", "mean", "spread")} == {3600}
    assert all(0 <= p <= 1 for p in picture["mean"])
    assert max(picture["spread"]) > 0
    assert len(picture["points"]["x"]) == 200
    # In the data's own units: the moons lie between -1.5 and 2.5.
    assert -3 < min(picture["axes"][0]) < -1
    figure = predictions_figure(picture, "t0001")
    heat = figure.data[0]
    # The value at the first point of both axes, and at the last of the first axis.
    assert heat.z[0][0] == picture["mean"][0]
    assert heat.z[0][-1] == picture["mean"][-60]
    assert "a title" in predictions_html(picture, "a title")


def test_a_picture_is_the_networks_own_prediction(make_spec, start) -> None:
    training = start(make_spec("ste-adam", "W", **MOONS))
    picture = predictions(training)
    assert "mean" not in picture
    info = DATASETS.get("moons")
    i, j = 7, 31
    point = torch.tensor([[picture["axes"][0][i], picture["axes"][1][j]]])
    x = (point - torch.tensor(info.mean)) / torch.tensor(info.std)
    expected = training.model.eval()(x).softmax(1)[0, 1]
    assert picture["mode"][60 * i + j] == pytest.approx(expected.item(), abs=1e-4)
    assert len(predictions_figure(picture, "").data) == 2


def test_images_have_no_picture_of_their_predictions(make_spec, start) -> None:
    assert predictions(start(make_spec("ste-adam", "W"))) is None


def test_a_curve_has_a_band_where_weights_are_drawn(make_spec, start, snelson) -> None:
    spec = make_spec(
        "bayesbinn",
        "W",
        params=BAYES,
        **(MOONS | {"dataset": "snelson", "data_dir": snelson, "subset": None, "epochs": 2}),
    )
    picture = predictions(start(spec))
    assert len(picture["mode"]) == len(picture["axes"][0]) == 200
    names = [trace.name for trace in predictions_figure(picture, "").data]
    assert any("mean ±" in name for name in names)


# --- tasks in a row -----------------------------------------------------------------------------


def row_spec(make_spec, permuted: str, prior: str = "previous", **task):
    given = {
        "dataset": permuted,
        "model": {"name": "bayesbinn-mlp", "depth": 2, "width": 24, "dropout": 0.0},
        "epochs": 6,
        "binarize": "all",
        "subset": 400,
    }
    params = {"lr": 1e-3, "tau": 1e-2, "prior": prior}
    return make_spec("bayesbinn", "W", params=params, **(given | task))


def test_every_task_has_its_own_order_of_the_pixels(permuted: str) -> None:
    row = load_train(permuted)
    assert isinstance(row, TaskRow)
    tasks = [row.of_task(k) for k in range(3)]
    for task in tasks:
        assert torch.equal(task.y, row.y)
        assert not torch.equal(task.x, row.x)
        assert torch.equal(task.x.flatten(1).sort(1)[0], row.x.flatten(1).sort(1)[0])
    assert not torch.equal(tasks[0].x, tasks[1].x)
    assert torch.equal(load_train(permuted).of_task(1).x, tasks[1].x)


def test_tasks_are_learned_one_after_the_other(make_spec, start, permuted: str) -> None:
    training = start(row_spec(make_spec, permuted))
    assert [phase.task for phase in training.phases] == [0, 1, 2]
    seen = []
    while not training.done:
        metrics = training.epoch()
        each = sorted(key for key in metrics if key.startswith("val_accuracy_task"))
        seen.append(len(each))
        mean = sum(metrics[key] for key in each) / len(each)
        assert metrics["val_accuracy"] == pytest.approx(mean)
    assert seen == [1, 1, 2, 2, 3, 3]


def test_the_posterior_of_a_task_is_the_prior_of_the_next(make_spec, start, permuted) -> None:
    for prior in ("previous", "none"):
        training = start(row_spec(make_spec, permuted, prior))
        layers = training.network.binary
        training.epoch()
        training.epoch()
        assert all(not layer.quantizer.prior.any() for layer in layers)
        before = [layer.latent.detach().clone() for layer in layers]
        training._begin_phase(1)
        for lam, layer in zip(before, layers, strict=True):
            assert torch.equal(layer.latent, lam)
            expected = lam if prior == "previous" else torch.zeros_like(lam)
            assert torch.equal(layer.quantizer.prior, expected)


def test_a_row_of_tasks_interrupted_in_the_middle_ends_the_same(
    make_spec, start, finish, permuted, tmp_path
) -> None:
    spec = row_spec(make_spec, permuted)
    whole = start(spec)
    for _ in range(3):
        whole.epoch()
    save_state(whole, tmp_path / "state.pt")
    finish(whole)
    resumed = start(spec)
    assert load_state(resumed, tmp_path / "state.pt")
    finish(resumed)
    pairs = zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_the_number_of_tasks_is_part_of_the_name() -> None:
    assert DATASETS.get("permuted-mnist").tasks == 5
    assert DATASETS.get("permuted-mnist:3").tasks == 3
    for name in ("permuted-mnist:x", "permuted-mnist:1", "permuted-mnist:"):
        with pytest.raises(UserError, match="K from 2 to 100"):
            DATASETS.get(name)
