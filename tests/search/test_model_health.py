"""How good the model is, against trials it was not told of."""

import numpy as np
import pytest

from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import LedgerReader
from bitfront.search.model_health import LEAST, ModelHealth
from bitfront.search.samplers.surrogate.model import QualityModel, Rows


def rows_of(numeric):
    n = len(numeric)
    empty = np.zeros((n, 0))
    levels, trend = empty.astype(np.float32), np.full((n, 2), 0.5)
    return Rows(levels, trend, numeric, empty.astype(int), 0, 1.0, empty)


def health_of(quality, numeric, extra=None):
    extra = np.zeros(len(quality)) if extra is None else extra
    return QualityModel(rows_of(numeric), quality, extra, np.random.default_rng(0))


def test_a_trial_is_predicted_as_by_a_model_that_was_never_told_of_it():
    """The closed form against the model conditioned on all other trials."""
    rng = np.random.default_rng(0)
    numeric = rng.random((20, 1))
    model = health_of(np.sin(4 * numeric[:, 0]) + 0.05 * rng.normal(size=20), numeric)
    kernel = model._covariances(model._rows, model._rows)
    noisy = kernel + np.diag(np.full(20, model._scales["noise"] + 1e-6))
    missed = []
    for i in range(20):
        rest = np.delete(np.arange(20), i)
        weights = np.linalg.solve(noisy[np.ix_(rest, rest)], model._y[rest])
        missed.append(model._y[i] - kernel[i, rest] @ weights)
    others = (model._y.sum() - model._y) / 19
    explained = 1 - np.square(missed).sum() / np.square(model._y - others).sum()
    health = model.health()
    assert health.explained == pytest.approx(explained, abs=1e-3)
    assert health.rank_correlation > 0.9
    assert not health.blind
    assert 0.6 <= health.within <= 1.0


def test_a_model_of_pure_noise_is_called_no_better_than_the_mean():
    rng = np.random.default_rng(1)
    health = health_of(rng.normal(size=40), rng.random((40, 2))).health()
    assert health.explained < 0.1
    assert ModelHealth(40, 0.0, -0.01, 0.8).blind
    assert "no better than their mean" in ModelHealth(40, 0.0, -0.01, 0.8).sentence()
    assert ModelHealth(LEAST - 1, 0.0, -0.5, 0.8).sentence() == ""


def test_guesses_about_stopped_trials_are_not_counted():
    numeric = np.linspace(0, 1, 16)[:, None]
    extra = np.zeros(16)
    extra[:6] = 0.01
    assert health_of(numeric[:, 0], numeric, extra).health().trials == 10


def test_the_ledger_tells_readers_of_it(make_space, tmp_path):
    config, space = make_space("search.sampler=free-cost", "search.trials=16")
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger(url, config, space)
    while (entry := ledger.ask()) is not None:
        metrics = {"epoch": 3, "val_accuracy": 0.9 - 0.1 * entry.spec.plan.count("B")}
        ledger.tell(entry.id, "complete", metrics, [metrics])
    reader = LedgerReader(url, config.name, config.objectives)
    reader.read()
    assert reader.model.trials >= LEAST
    assert reader.model.rank_correlation > 0.5


@pytest.mark.parametrize("wrong", [{"trials": 3}, {"trials": "x"}, {**dict.fromkeys("abcd", 1)}])
def test_a_damaged_note_is_an_error(wrong):
    with pytest.raises(ValueError, match="its model"):
        ModelHealth.from_json(wrong)
