"""Numbers that papers print besides validation accuracy: accuracy on the training part, and the
mean over draws after every so many epochs."""

from __future__ import annotations

import pytest
import torch

from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.tasks import kind_of

BAYES = {"lr": 3e-2, "tau": 1.0, "lam_init": 0.3, "mean_samples": 3}


@pytest.fixture
def trained(make_spec, start, finish):
    """A finished training of three epochs."""

    def run(method="ste-adam", level="W", params=None, **task):
        spec = make_spec(method, level, epochs=3, **task)
        return finish(start(spec.model_copy(update={"params": params or {}})))

    return run


def by_hand(training) -> float:
    """The share of training examples that the network classifies correctly with the signs of its
    weights, running statistics of batch norm and no dropout, one example at a time."""
    network = training.model.eval()
    with torch.no_grad():
        for layer in training.network.binary:
            assert torch.equal(layer.module.weight, sign(layer.latent))
        part = training.train
        pairs = zip(part.x, part.y, strict=True)
        right = [int(network(x[None]).argmax()) == int(y) for x, y in pairs]
    return sum(right) / len(right)


@pytest.mark.parametrize(("when", "epochs"), [("never", []), ("end", [3]), ("epochs", [1, 2, 3])])
def test_the_training_part_is_measured_when_the_task_says_so(trained, when, epochs):
    training = trained(measure_train=when)
    found = {int(row["epoch"]): row.get("train_accuracy") for row in training.history}
    assert [epoch for epoch, value in found.items() if value is not None] == epochs
    if epochs:
        assert found[3] == pytest.approx(by_hand(training))


def test_measuring_the_training_part_changes_no_training_and_no_id(trained, make_spec):
    runs = [trained("bayesbinn", params=BAYES, measure_train=w) for w in ("never", "epochs")]
    for one, two in zip(*(run.model.state_dict().values() for run in runs), strict=True):
        assert torch.equal(one, two)
    ids = {make_spec("bnn", "W", measure_train=w).fingerprint() for w in ("never", "end")}
    assert len(ids) == 1


def test_the_best_epoch_has_the_training_accuracy_of_its_own_weights(trained):
    training = trained(measure_train="end", keep="best")
    assert training.history[-1]["train_accuracy"] == pytest.approx(by_hand(training))


@pytest.mark.parametrize(("every", "epochs"), [(0, [3]), (1, [1, 2, 3]), (2, [2, 3])])
def test_the_mean_over_draws_is_measured_every_so_many_epochs(trained, every, epochs):
    training = trained("bayesbinn", params={**BAYES, "mean_every": every})
    found = [int(row["epoch"]) for row in training.history if "val_accuracy_mean" in row]
    assert found == epochs
    alone = trained("bayesbinn", params=BAYES)
    assert training.history[-1]["val_accuracy_mean"] == alone.history[-1]["val_accuracy_mean"]
    states = (run.model.state_dict().values() for run in (training, alone))
    assert all(torch.equal(one, two) for one, two in zip(*states, strict=True))


def test_the_mean_of_certain_weights_is_the_mode(trained):
    certain = {**BAYES, "lr": 1e-9, "lam_init": 20.0, "mean_every": 1}
    for row in trained("bayesbinn", params=certain, measure_train="epochs").history:
        assert row["val_accuracy_mean"] == row["val_accuracy"]
        assert row["train_accuracy_mean"] == row["train_accuracy"]


def test_the_mean_over_draws_is_measured_on_the_training_part_as_the_mode_is(trained):
    """Of 3 draws with the seed of the trial, by the average of their probabilities."""
    training = trained("bayesbinn", params=BAYES, measure_train="end")
    assert [row for row in training.history if "train_accuracy_mean" in row] == [
        training.history[-1]
    ]
    mean = training.method.predictions(training.model, training.kind.combine, training.spec.seed)
    with torch.no_grad():
        part = training.train
        right = [int(mean(x[None]).argmax()) == int(y) for x, y in zip(part.x, part.y, strict=True)]
    share = sum(right) / len(right)
    assert training.history[-1]["train_accuracy_mean"] == pytest.approx(share)


def test_rows_may_name_what_searches_do_not_optimize():
    kind = kind_of("digits")
    names = {metric.name for metric in kind.reported}
    assert {"train_accuracy", "val_accuracy_mean", "test_accuracy", "test_accuracy_draws"} <= names
    assert not names & {metric.name for metric in kind.metrics}
    assert kind.metric("train_accuracy").share
