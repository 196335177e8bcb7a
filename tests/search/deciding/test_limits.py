"""Limits on what is measured: which points are on the front, what is said of the others, and where
the search spends its trials."""

import numpy as np
import pytest

from bitfront.search.config.errors import ConfigError
from bitfront.search.config.sections.bounds import Limit
from bitfront.search.deciding.limits import limits_in_words, limits_json, missed
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.growth import Growth
from bitfront.search.results.reader import view_of
from bitfront.search.results.results import Results
from bitfront.search.samplers.surrogate.keeping import KeepingModel, kept

LIMITS = "limits.val_accuracy={min: 0.7}"


@pytest.fixture
def searched(make_space, tmp_path):
    """A search whose trials have these accuracies; every plan once, seeds of a point not."""

    def make(accuracies, *settings):
        config, space = make_space(f"search.trials={len(accuracies)}", *settings)
        ledger = Ledger("memory:", config, space)
        for accuracy in accuracies:
            entry = ledger.ask()
            row = {"epoch": 3, "val_accuracy": accuracy}
            ledger.tell(entry.id, "complete", row, [row])
        entries = list(ledger.entries.values())
        folder = SearchFolder(tmp_path / config.name)
        return Results.from_entries(folder, config, entries, ledger.reference)

    return make


def test_a_miss_is_how_far_outside_and_what_was_not_measured_is_infinitely_far():
    limits = {"val_accuracy": Limit(min=0.9), "val_loss": Limit(min=0.1, max=0.5)}
    assert missed(limits, {"val_accuracy": 0.9, "val_loss": 0.5}) == {}
    found = missed(limits, {"val_accuracy": 0.85, "val_loss": 0.7})
    assert found == pytest.approx({"val_accuracy": 0.05, "val_loss": 0.2})
    assert missed(limits, {"val_loss": float("nan")}) == dict.fromkeys(limits, float("inf"))


def test_the_front_holds_only_points_that_keep_the_limits_and_the_others_are_named(searched):
    accuracies = [0.8, 0.6, 0.72, 0.69, 0.3, 0.9]
    results = searched(accuracies, LIMITS)
    assert results.front
    assert all(e.metrics["val_accuracy"] >= 0.7 for e in results.front)
    (told,) = limits_in_words(results.config, results.points)
    nearest = results.entries[3].id
    assert told.startswith("3 of 6 points keep val_accuracy >= 0.7; the nearest others: ")
    assert f"others: {nearest} misses val_accuracy by 0.01;" in told
    status = results.status_json()["limits"]
    assert status["kept"] == 3
    assert [m["trial"] for m in status["missed"]] == [results.entries[i].id for i in (3, 1, 4)]
    view = view_of(results)
    assert view.limits == [told]
    assert view.point_of[nearest].extra["misses"] == "val_accuracy by 0.01"


def test_where_nothing_keeps_them_the_front_is_empty_and_the_nearest_are_shown(searched):
    results = searched([0.5, 0.6, 0.2], LIMITS)
    assert results.front == []
    assert results.best is None
    assert results.hypervolume_share == 0
    (told,) = limits_in_words(results.config, results.points)
    best = results.entries[1].id
    assert told.startswith(
        "No point keeps val_accuracy >= 0.7, so the front is empty; the nearest:"
    )
    assert f"nearest: {best} misses val_accuracy by 0.1;" in told


def test_the_growth_of_the_hypervolume_counts_what_the_front_holds(searched):
    for accuracies in ([0.8, 0.6, 0.72, 0.69], [0.5, 0.6, 0.2, 0.9], [0.1, 0.2, 0.1, 0.2]):
        results = searched(accuracies, LIMITS)
        steps = Growth(results.config, results.reference).followed(results.entries)
        assert steps[-1].share == pytest.approx(results.hypervolume_share)


def test_without_such_limits_nothing_is_said(searched):
    results = searched([0.5, 0.6], "limits.flops_pct=100")
    assert limits_in_words(results.config, results.points) == []
    assert limits_json(results.config, results.points) is None


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("limits.val_acuracy={min: 0.9}", "did you mean 'val_accuracy'?"),
        ("limits.val_accuracy={min: 90}", "val_accuracy is a fraction, got 90"),
        ("limits.val_accuracy={min: 0.9, max: 0.1}", "min is above max"),
        ("limits.val_auc={min: 0.9}", "unknown key"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_an_error(make_config, setting, wanted):
    with pytest.raises(ConfigError) as error:
        make_config(setting)
    assert wanted in str(error.value)


def test_a_bare_number_is_the_worst_value(make_config):
    config = make_config("limits={val_accuracy: 0.9, val_loss: 0.5, flops_pct: 60}")
    assert config.limits["val_accuracy"] == Limit(min=0.9)
    assert config.limits["val_loss"] == Limit(max=0.5)
    assert set(config.measured_limits) == {"val_accuracy", "val_loss"}
    assert set(config.cost_limits) == {"flops_pct"}


def test_the_attack_of_a_limit_is_measured(make_config):
    config = make_config("limits.val_robust_pgd20={min: 0.4}", "task.attack.eps=0.1")
    assert "pgd20" in config.task.attack.evaluate


class Points:
    """Rows of one number each, without beliefs."""

    def __init__(self, *numbers):
        self.numbers = np.array(numbers)
        self.unbelieved = self


class Known:
    """A model that knows: the quality is the number itself."""

    noise_sd = 0.0

    def predict(self, rows):
        return rows.numbers, np.full(len(rows.numbers), 0.1)


def test_the_chance_to_keep_a_limit_is_that_of_a_normal_distribution():
    model = KeepingModel(Known(), 0.0, np.inf)
    assert model.chance(Points(0.0, 0.1, -0.1)) == pytest.approx([0.5, 0.8413, 0.1587], abs=1e-4)
    both = KeepingModel(Known(), -0.1, 0.1).chance(Points(0.0))
    assert both == pytest.approx(0.6827, abs=1e-4)


def test_what_was_not_measured_keeps_nothing():
    limits = {"val_loss": Limit(max=0.5)}
    assert kept(limits, np.array([[0.5], [0.6], [np.nan]])).tolist() == [True, False, False]


def test_trials_are_spent_where_the_limits_can_hold(make_space):
    """Accuracy falls with every binary layer: with the limit the search stays among plans that keep
    it."""

    def share_kept(*settings):
        config, space = make_space("search.sampler=free-cost", "search.trials=24", *settings)
        ledger = Ledger("memory:", config, space)
        found = []
        while (entry := ledger.ask()) is not None:
            accuracy = 0.9 - 0.1 * entry.spec.plan.count("B")
            row = {"epoch": 3, "val_accuracy": accuracy}
            ledger.tell(entry.id, "complete", row, [row])
            found.append(accuracy >= 0.75)
        return np.mean(found[8:])

    assert share_kept("limits.val_accuracy={min: 0.75}") > share_kept() + 0.2
