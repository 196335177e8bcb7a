"""Files in a shared place: a path, a URL of pyarrow's, a URL of fsspec's; and a trial that keeps
its checkpoint there."""

from functools import partial

import pytest

from bitfront.trainables.worker import storage
from bitfront.trainables.worker.worker import STATE_FILE, Worker, fetch

pytestmark = pytest.mark.slow


@pytest.fixture(params=["path", "file", "memory"])
def place(request, tmp_path):
    """`memory:` is known to fsspec alone."""
    return {
        "path": str(tmp_path / "shared"),
        "file": f"file://{tmp_path}/shared",
        "memory": f"memory://{tmp_path.name}",
    }[request.param]


def test_what_is_written_is_read_until_it_is_forgotten(place):
    file = storage.join(place, "search", "trial", "state.pt")
    assert storage.read(file) is None
    storage.write(file, b"one")
    storage.write(file, b"two")
    assert storage.read(file) == b"two"
    storage.forget(storage.join(place, "search"))
    storage.forget(storage.join(place, "search"))
    assert storage.read(file) is None


def test_a_trial_continues_from_a_checkpoint_another_worker_stored(place, make_spec):
    spec = make_spec(epochs=3)
    folder = storage.join(place, "trial")
    config = {"trial": "t", "spec": spec.model_dump(mode="json"), "folder": folder}
    first = Worker(config)
    first.train()
    first.stop()
    assert storage.read(storage.join(folder, STATE_FILE)) is not None
    second = Worker(config)
    result = second.train()
    assert (result["resumed_from"], result["epoch"]) == (1, 2)
    other = {**config, "trial": "u", "folder": storage.join(place, "other")}
    assert second.reset_config(other)
    assert second.train()["resumed_from"] == 0, "the file of the trial before is not taken up"
    second.stop()


def test_a_place_is_tried_out_and_left_as_it_was(place):
    storage.try_out(place)
    storage.write(storage.join(place, "kept"), b"")
    storage.try_out(place)
    assert storage.read(storage.join(place, "kept")) == b""


def test_a_place_that_refuses_is_found_out(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        storage.try_out(str(tmp_path / "file" / "below"))


def test_a_storage_that_comes_back_is_waited_for(tmp_path, monkeypatch):
    answers = iter([OSError("away"), RuntimeError("still"), b"state"])

    def read(place):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(storage, "read", read)
    state = tmp_path / "state.pt"
    assert fetch("s3://bucket/t/state.pt", state) is None
    assert state.read_bytes() == b"state"


def test_a_trial_whose_storage_stays_away_begins_anew_and_says_so(make_spec, monkeypatch):
    def away(place):
        raise OSError("503 slow down")

    monkeypatch.setattr(storage, "read", away)
    monkeypatch.setattr("bitfront.trainables.worker.worker.fetch", partial(fetch, patience=0.0))
    spec = make_spec(epochs=2).model_dump(mode="json")
    trial = Worker({"trial": "t", "spec": spec, "folder": "memory://away/t"})
    result = trial.train()
    assert (result["epoch"], result["resumed_from"]) == (1, 0)
    assert "503 slow down" in result["not_saved"]
    trial.stop()
