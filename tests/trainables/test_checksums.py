"""A checkpoint in which one bit has changed is never continued from: other numbers without a word
would be worse than a trial that begins again."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bitfront.trainables import checksums
from bitfront.trainables.selectors import SelectionSpec, select
from bitfront.trainables.selectors.selection import stored
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.pretraining import PretrainedCache, _stored, pretraining_spec
from bitfront.trainables.worker.worker import STATE_FILE, Worker

FLIPS = 150
SMALL = {"name": "mlp", "depth": 3, "width": 8}


def flipped(good: bytes, seed: int = 0) -> Iterator[bytes]:
    """The content with one bit changed, at places all over it."""
    rng = random.Random(seed)
    for k in range(FLIPS):
        damaged = bytearray(good)
        damaged[(k * len(good) + rng.randrange(len(good))) // FLIPS] ^= 1 << rng.randrange(8)
        yield bytes(damaged)


def same(one: Any, other: Any) -> bool:
    """Bit for bit, tensors and numbers alike."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "of version 0.1"])
def test_a_state_with_one_bit_changed_is_never_continued_with_other_numbers(
    make_spec, start, tmp_path: Path, sealed: bool
) -> None:
    spec = make_spec("bnn", model=SMALL)
    begun, path = start(spec), tmp_path / "state.pt"
    begun.epoch()
    save_state(begun, path)
    if not sealed:
        path.write_bytes(path.read_bytes()[: -checksums.SEAL_BYTES])
    expected, good = begun.state_dict(), path.read_bytes()
    accepted = wrong = 0
    for content in flipped(good):
        path.write_bytes(content)
        reasons: list[str] = []
        fresh = start(spec)
        if load_state(fresh, path, reasons.append):
            accepted += 1
            wrong += not same(fresh.state_dict(), expected)
        else:
            assert fresh.epochs_done == 0
            assert "damaged" in reasons[0]
            assert not path.exists()
    assert wrong == 0
    # A bit of the mark, or a part of an archive that says nothing: times, versions.
    assert accepted <= (1 if sealed else FLIPS // 3)


def test_an_undamaged_state_is_continued_sealed_or_not(make_spec, start, tmp_path: Path) -> None:
    spec = make_spec("bnn", model=SMALL)
    begun, path = start(spec), tmp_path / "state.pt"
    begun.epoch()
    save_state(begun, path)
    # torch and zip tools open the file as it is.
    assert torch.load(path, weights_only=True)["epochs_done"] == 1
    assert zipfile.ZipFile(path).testzip() is None
    for _ in range(2):
        fresh = start(spec)
        assert load_state(fresh, path, pytest.fail)
        assert same(fresh.state_dict(), begun.state_dict())
        path.write_bytes(path.read_bytes()[: -checksums.SEAL_BYTES])


def test_a_trial_tells_that_its_checkpoint_was_damaged(make_spec, tmp_path: Path) -> None:
    spec = make_spec("bnn", model=SMALL, epochs=2)
    config = {"trial": "t", "spec": spec.model_dump(mode="json"), "folder": str(tmp_path)}
    Worker(config=config).step()
    state = tmp_path / STATE_FILE
    state.write_bytes(next(flipped(state.read_bytes(), seed=1)))
    again = Worker(config=config)
    first, second = again.step(), again.step()
    assert first["resumed_from"] == 0
    assert "damaged" in first["damaged"]
    assert "damaged" not in second


def test_a_stage_with_one_bit_changed_is_not_used(make_spec, start, finish, tmp_path: Path) -> None:
    spec = make_spec("bnn", "W", model=SMALL, epochs=1, pretrain={"epochs": 1})
    training = finish(start(spec, pretrained=PretrainedCache(tmp_path)))
    before = pretraining_spec(spec)
    assert before is not None
    path = PretrainedCache(tmp_path).path(before, training.train)
    good, expected = path.read_bytes(), _stored(path)
    assert expected is not None
    for content in flipped(good):
        path.write_bytes(content)
        found = _stored(path)
        assert found is None or same(found, expected)


def test_a_selection_with_one_bit_changed_is_not_used(tmp_path: Path) -> None:
    task = {"dataset": "digits", "model": {"name": "mlp", "depth": 6, "width": 12}}
    spec = SelectionSpec.model_validate({"selector": "random", "task": task})
    expected = select(spec, tmp_path)
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    assert stored(spec, tmp_path) == expected
    for content in flipped(good):
        path.write_bytes(content)
        assert stored(spec, tmp_path) in (None, expected)


def test_a_selection_of_version_0_1_is_found(tmp_path: Path) -> None:
    task = {"dataset": "digits", "model": {"name": "mlp", "depth": 6, "width": 12}}
    spec = SelectionSpec.model_validate({"selector": "random", "task": task})
    expected = select(spec, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(expected.model_dump_json(indent=1))
    assert stored(spec, tmp_path) == expected


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.bool, torch.int64, torch.float32])
def test_tensors_of_every_type_have_a_checksum(kind: torch.dtype) -> None:
    tensors = {"a": torch.ones(3, 2, dtype=kind), "b": torch.zeros((), dtype=kind)}
    told = checksums.tensors_digest(tensors)
    assert told == checksums.tensors_digest(dict(reversed(tensors.items())))
    assert told != checksums.tensors_digest({"a": tensors["a"].t(), "b": tensors["b"]})
