"""Files in a shared place: a path, a URL of pyarrow's, a URL of fsspec's; and a trial that keeps
its checkpoint there."""

import pytest

from trainables import storage
from trainables.trial import STATE_FILE, Trial


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
    first = Trial(config)
    first.train()
    first.stop()
    assert storage.read(storage.join(folder, STATE_FILE)) is not None
    second = Trial(config)
    result = second.train()
    assert (result["resumed_from"], result["epoch"]) == (1, 2)
    other = {**config, "trial": "u", "folder": storage.join(place, "other")}
    assert second.reset_config(other)
    assert second.train()["resumed_from"] == 0, "the file of the trial before is not taken up"
    second.stop()
