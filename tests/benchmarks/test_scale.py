"""What the benchmarks put in a trial's place must be taken for one by the driver."""

import csv
import inspect
from types import SimpleNamespace

import pytest

from benchmarks.overhead import completed
from benchmarks.scale import SEARCH
from benchmarks.wide import RAY_TRIAL, WAIT, Servers, Simulation, main
from bitfront.search.config.load import load_text
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.trainables.worker.worker import Worker
from testbed.near_empty import STEPS, Busy, NearEmpty, Stepped


@pytest.mark.parametrize("trainable", [NearEmpty, Busy, Stepped])
def test_a_trainable_takes_what_the_driver_gives(trainable):
    given, taken = (inspect.signature(c.setup).parameters for c in (Worker, trainable))
    assert list(taken) == list(given)


def test_trials_that_failed_are_not_measured(tmp_path):
    config, space = load_text(SEARCH, "scale.yaml")
    place = SearchFolder(tmp_path / config.name)
    place.path.mkdir()
    ledger = Ledger(place.ledger_url, config, space)
    ledger.tell(ledger.ask().id, "complete", {"epoch": 1, "val_accuracy": 0.5})
    assert len(completed(place, 1)) == 1
    ledger.tell(ledger.ask().id, "failed", failure="error", message="took no data")
    with pytest.raises(RuntimeError, match="1 not complete: error: took no data"):
        completed(place, 2)
    with pytest.raises(RuntimeError, match="2 of 3 trials"):
        completed(place, 3)


def test_a_trial_of_several_epochs_ends_with_all_of_them():
    trial = Stepped.__new__(Stepped)
    trial.setup({"trial": "0a"})
    results = [trial.step() for _ in range(STEPS)]
    assert [r["epoch"] for r in results] == [1, 2, 3, 4, 5]
    assert [r.get("done", False) for r in results] == [False] * 4 + [True]
    assert results[-1]["history"] == [{k: r[k] for k in results[0]} for r in results]


class Asked:
    """A session whose ask takes a second of CPU time by its own clock, everything else nothing."""

    tracker = None

    def __init__(self, trials):
        self.now, self.left, self.finished = 0.0, trials, []

    def ask(self):
        if not self.left:
            return None
        self.now += 1.0
        self.left -= 1
        spec = SimpleNamespace(plan="FB")
        return SimpleNamespace(id=f"{self.left:04x}", spec=spec, drawn={})

    def gives_up(self, trial_id, result):
        return False

    def report(self, trial_id, result):
        assert not result["done"]

    def finish(self, trial_id, result):
        assert result["epoch"] == len(result["history"])
        self.finished.append(trial_id)


@pytest.mark.parametrize(("seconds", "least", "most"), [(1000, 0.98, 1.0), (2, 0.0, 0.35)])
def test_slots_wait_for_a_driver_that_is_slower_than_its_trials(monkeypatch, seconds, least, most):
    """Ten slots and an ask of a second: trials of 1,000 s keep them busy, trials of 2 s cannot."""
    session = Asked(200)
    monkeypatch.setattr("benchmarks.wide.time.process_time", lambda: session.now)
    simulation = Simulation(session, 10, seconds, 2, Servers(), Servers())
    busy = []
    simulation.run(lambda s: busy.append(1 - s.idle / (s.slots * s.clock)))
    assert len(set(session.finished)) == simulation.asked == 200
    assert simulation.cpu["ask"] == 200
    assert least <= busy[180] <= most
    assert simulation.clock >= 200 * (1 + WAIT + RAY_TRIAL)


def test_a_simulated_search_is_a_real_one_without_training(tmp_path, capsys):
    words = "--trials 8 --slots 3 --marks 3 5 --layers 3 --epochs 2 --tracking none"
    main([*words.split(), "--out", str(tmp_path / "wide.csv")])
    assert "PASS  slots that train" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "wide.csv").read_text().splitlines()))
    assert [row["trials"] for row in rows] == ["3", "5"]
    assert all(0 < float(row["ask ms"]) < 5000 for row in rows)
