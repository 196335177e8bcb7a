"""What the benchmarks put in a trial's place must be taken for one by the driver."""

import inspect

import pytest

from benchmarks.overhead import completed
from benchmarks.scale import SEARCH
from bitfront.search.config.load import load_text
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.trainables.worker.worker import Worker
from testbed.near_empty import Busy, NearEmpty


@pytest.mark.parametrize("trainable", [NearEmpty, Busy])
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
