"""What the next trials may add to the front."""

import json

import numpy as np
import pytest

from bitfront.search.deciding.outlook import Outlook, Try, percent
from bitfront.search.front import Objective, hypervolume
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import LedgerReader
from bitfront.search.results.reader import tries_in_words
from bitfront.search.results.results import Results
from bitfront.search.samplers.surrogate.fronts import Staircase
from bitfront.search.samplers.surrogate.prospect import TRIES, Ahead, outlook, simulated_gains

BOTH = [Objective("quality", True), Objective("cost", False)]


def stairs_of(points):
    cost, quality = np.array(sorted(points)).T
    return Staircase.of(quality, cost, 0.0, 1.0)


def volume(points):
    return hypervolume([(q, c) for c, q in points], [0.0, 1.0], BOTH)


@pytest.mark.parametrize("seed", range(4))
def test_the_gain_of_known_trials_is_what_they_add_to_the_hypervolume(seed):
    """Ten candidates without uncertainty, all of which are taken."""
    rng = np.random.default_rng(seed)
    before = [tuple(p) for p in rng.random((5, 2))]
    new = rng.random((10, 2)) * 1.2 - 0.1
    gains = simulated_gains(stairs_of(before), new[:, 0], new[None, :, 1], running=2)
    points = [tuple(p) for p in new]
    assert gains == pytest.approx([volume(before + points) - volume(before)])


def test_trials_that_run_come_first_and_the_best_of_the_others_then():
    """Eleven candidates, of which the running one adds nothing and the last one least."""
    front = stairs_of([(0.5, 0.5)])
    cost = np.linspace(0.05, 0.45, 11)
    quality = np.concatenate([[-1.0], np.linspace(0.1, 0.3, 9), [-0.5]])
    gain = simulated_gains(front, cost, quality[None], running=1)
    points = list(zip(cost[1:10], quality[1:10], strict=True))
    assert gain == pytest.approx([volume([(0.5, 0.5), *points]) - volume([(0.5, 0.5)])])


def told(chance=1.0, spread=0.1, seed=0):
    rng = np.random.default_rng(seed)
    mean = np.full(12, 0.5)
    drawn = mean + spread * rng.normal(size=(64, 12))
    ahead = Ahead(np.linspace(0.1, 0.9, 12), mean, drawn, np.full(12, chance), 0)
    return outlook(stairs_of([(0.3, 0.5)]), ahead, 20, np.random.default_rng(1))


def test_the_range_widens_with_uncertainty_and_trials_that_fail_add_nothing():
    sure, unsure = told(spread=0.01), told(spread=0.2)
    assert sure.low <= sure.expected <= sure.high
    assert unsure.high - unsure.low > 3 * (sure.high - sure.low)
    assert told(chance=0.0).high == 0
    assert told(chance=0.3).expected < told().expected


def test_without_a_front_nothing_is_expected():
    none = Staircase(np.zeros(0), np.zeros(0), 1.0, 0.0)
    ahead = Ahead(np.ones(1), np.ones(1), np.ones((4, 1)), np.ones(1), 0)
    assert outlook(none, ahead, 20, np.random.default_rng(0)) is None


def test_it_is_told_in_words():
    found = Outlook(40, 10, 0.00049, 0.0, 0.0092)
    assert found.sentence() == (
        "10 more trials are expected to raise the hypervolume by 0.049 % "
        "(80 % range: 0 % to 0.92 %), as of 40 trials."
    )
    assert found.short == "next 10: +0.049 % (0 to 0.92)"
    assert [percent(x) for x in (0.0, 0.1234, 1.5, 1e-4)] == ["0 %", "12 %", "150 %", "0.01 %"]


def test_the_ledger_keeps_it_and_the_last_look_is_of_all_trials(make_space, tmp_path):
    config, space = make_space("search.sampler=free-cost", "search.trials=23")
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger(url, config, space)
    while (entry := ledger.ask()) is not None:
        row = {"epoch": 3, "val_accuracy": 0.9 - 0.1 * entry.spec.plan.count("B")}
        ledger.tell(entry.id, "complete", row, [row])
    assert ledger.outlook.trials == 20
    ledger.look_ahead()
    reader = LedgerReader(url, config.name, config.objectives)
    reader.read()
    assert reader.outlook == ledger.outlook
    assert reader.outlook.trials == 23
    assert 0 <= reader.outlook.low <= reader.outlook.expected <= reader.outlook.high < 0.2
    results = Results.from_reader(None, config, reader)
    assert reader.outlook.sentence() in results.told
    assert 1 <= len(reader.outlook.tries) <= TRIES
    known = {(e.spec.plan, *map(str, e.drawn.values())) for e in reader.entries}
    for each in reader.outlook.tries:
        assert (each.plan, *map(str, each.params.values())) not in known
        assert 0.0 < each.quality < 1.0
    for line in tries_in_words(results):
        assert "accuracy" in line
        assert "% of the flops" in line


def test_a_sampler_without_a_model_expects_nothing(make_space):
    config, space = make_space("search.trials=16")
    ledger = Ledger("memory:", config, space)
    while (entry := ledger.ask()) is not None:
        ledger.tell(entry.id, "failed", failure="nan")
    ledger.look_ahead()
    assert ledger.outlook is None


@pytest.mark.parametrize("wrong", [{"trials": 3}, dict.fromkeys(("a", "b"), 1)])
def test_a_damaged_note_is_an_error(wrong):
    with pytest.raises(ValueError, match="its outlook"):
        Outlook.from_json(wrong)


def test_what_would_be_tried_next_is_kept_and_told():
    """As the sampler left it in the ledger, and damaged."""
    tries = (Try({"method": "bnn", "width": 8}, "FB", 0.93, {"flops": 2e5}),)
    found = Outlook(40, 10, 0.00049, 0.0, 0.0092, tries)
    stored = json.loads(json.dumps(found.as_json()))
    assert stored == found.as_json()
    assert Outlook.from_json(stored) == found
    assert Outlook.from_json({k: v for k, v in stored.items() if k != "tries"}).tries == ()
    for wrong in ([3], [{"plan": "F"}], 5, [{**stored["tries"][0], "quality": "high"}]):
        with pytest.raises(ValueError, match="its outlook"):
            Outlook.from_json({**stored, "tries": wrong})
