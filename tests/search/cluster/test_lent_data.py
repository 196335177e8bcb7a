"""Data in Ray's object store: files are read once, a node holds them once, nobody writes there."""

import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.session.session import Session
from bitfront.trainables.data import datasets, lend, load_train, stored_arrays
from testbed.rig.here import ray_here

pytestmark = pytest.mark.slow


@pytest.fixture
def own_lending(monkeypatch):
    monkeypatch.setattr(datasets, "_lent", {})
    datasets._read.cache_clear()
    yield
    datasets._read.cache_clear()


def test_lent_arrays_are_used_and_never_written(own_lending):
    before = load_train("digits")
    x, y = (array.copy() for array in stored_arrays("digits")["train"])
    kept = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = False
    datasets._read.cache_clear()
    asked = []
    lend("digits", "train", lambda: (asked.append(1), (x, y))[1])
    after = load_train("digits")
    after.x.add_(1.0)
    after.y.zero_()
    again = load_train("digits")
    assert asked == [1], "fetched once a process"
    assert np.array_equal(kept[0], x)
    assert np.array_equal(kept[1], y)
    assert before.x.equal(again.x)
    assert before.y.equal(again.y)


def mapped_file(fetch):
    """Device and inode of the memory an array lies in, and whether it may be written."""
    x, _ = fetch()
    address = x.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, device, inode, *_ = line.split()
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high:
            return os.getpid(), device, inode, x.flags.writeable
    return None


@pytest.fixture
def pictures(tmp_path):
    """A data set of the user's own, in files."""
    for label in range(2):
        for i in range(12):
            file = tmp_path / "data" / "dots" / "train" / f"class{label}" / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (200 * label, 9 * i, 0)).save(file)
    return tmp_path / "data"


@pytest.mark.timeout(300)
def test_a_node_reads_files_once_and_its_workers_share_the_memory(
    own_lending, make_space, pictures, tmp_path, monkeypatch
):
    import ray

    from bitfront.search.cluster import tuner

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers know no tests
    lending = tuner._lent
    found = []

    def then_take_the_files_away(config):
        lent = lending(config)
        pictures.rename(tmp_path / "away")
        references = lent[config.task.dataset]["train"]
        fetch = partial(ray.get, references[0])
        tasks = [ray.remote(num_cpus=1)(mapped_file).remote(fetch) for _ in range(2)]
        found.extend(ray.get(tasks))
        return lent

    monkeypatch.setattr(tuner, "_lent", then_take_the_files_away)
    with ray_here():
        given = ["task.dataset=folder:dots:8", f"task.data_dir={pictures}", "task.subset=null"]
        small = ["task.epochs=1", "task.batch_size=4", "search.trials=4", "task.pretrain=2"]
        config, space = make_space(*given, *small)
        folder = SearchFolder(tmp_path / "one")
        folder.path.mkdir()
        session = Session(config, space, folder, None)
        tuner.run_trials(session)
        told = session.board.read()
    trials = list(session.ledger.entries.values())
    assert [e.state for e in trials] == ["complete"] * 4, [e.message for e in trials]
    assert told == ["pretraining, epoch 2 of 2"], (
        "the driver hears how far the shared pretraining is"
    )
    assert len({place[1:3] for place in found}) == 1, "one file in memory for all"
    assert found[0][2] != "0"
    assert not any(place[3] for place in found), "and nobody may write to it"
