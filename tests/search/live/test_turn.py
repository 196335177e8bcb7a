"""What a running search tells its pages: the epochs of running trials, and time without pauses."""

import json

import pytest

from bitfront.search.config.load import load_text
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.live.busy import LEAST_GAP, BusyClock, span
from bitfront.search.live.teller import telling
from bitfront.search.live.turn import FILE, MOST_EPOCHS, Running, Turn, read_turn, write_turn
from bitfront.search.session.progress import Silent
from bitfront.search.session.session import Session
from bitfront.trainables.files import write_atomically

YAML = """\
name: told
task: {dataset: digits, model: {name: mlp, depth: 5, width: 16}, epochs: 4}
space: {method: bnn, plan: {per: layer, levels: [F, B]}}
search: {sampler: random, trials: 4}
"""


@pytest.fixture
def session(tmp_path):
    config, space = load_text(YAML, "told.yaml")
    folder = SearchFolder(tmp_path / "told")
    write_atomically(folder.config_file, config.dump())
    return Session(config, space, folder, tracker=None, progress=telling(Silent))


def epoch(session, entry, number, value):
    result = {"epoch": number, "val_accuracy": value, "hostname": "here"}
    session.report(entry.id, {**result, "measured": ["epoch", "val_accuracy"]})


def test_a_reader_sees_every_epoch_of_a_running_trial(session):
    session.progress.start()
    entry = session.ask()
    epoch(session, entry, 1, 0.5)
    session.progress._next = 0.0  # as if a second had passed
    epoch(session, entry, 2, 0.7)
    session.progress._next = 0.0
    session.progress.nodes(["here", "there"], ["gone"])
    session.progress.look()
    turn = read_turn(session.folder.path)
    assert turn.running == {entry.id: Running("here", 4, [(1, 0.5), (2, 0.7)])}
    assert (turn.nodes, turn.lost) == (["here", "there"], ["gone"])
    session.finish(entry.id, {"epoch": 4, "val_accuracy": 0.8, "history": []})
    session.progress._next = 0.0
    session.progress.look()
    assert read_turn(session.folder.path).running == {}
    session.progress.stop()
    assert not (session.folder.path / FILE).exists()


def test_a_folder_that_cannot_be_written_ends_no_search(session, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("bitfront.search.live.teller.write_turn", full)
    session.progress.start()
    epoch(session, session.ask(), 1, 0.5)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"running": 3}', "null"])
def test_a_damaged_file_is_no_turn(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    assert read_turn(tmp_path) is None


def test_numbers_that_are_none_are_left_out(tmp_path):
    write_turn(tmp_path, Turn(1.0, running={"t": Running("", 9, [(1, 0.5)])}))
    data = json.loads((tmp_path / FILE).read_text())
    data["left"], data["running"]["t"]["curve"] = float("nan"), [[1, float("inf")], [2, 0.6]]
    (tmp_path / FILE).write_text(json.dumps(data))
    turn = read_turn(tmp_path)
    assert turn.left is None
    assert turn.running["t"].curve == [(2, 0.6)]


def test_long_curves_are_thinned_and_keep_their_end(tmp_path):
    curve = [(e, e / 1000) for e in range(1, 1001)]
    write_turn(tmp_path, Turn(1.0, running={"t": Running("", 1000, curve)}))
    kept = read_turn(tmp_path).running["t"].curve
    assert len(kept) <= MOST_EPOCHS
    assert kept[-1] == (1000, 1.0)


def test_pauses_between_turns_do_not_count():
    night = 8 * 3600.0
    clock = BusyClock([(100.0, 110.0), (105.0, 130.0), (130.0 + night, 150.0 + night)])
    assert clock.total == 50.0
    assert clock.gaps == [30.0]
    assert [clock.at(t) for t in (0, 100, 120, 130, 5000, 140 + night, 1e9)] == [
        0.0, 0.0, 20.0, 30.0, 30.0, 40.0, 50.0,
    ]  # fmt: skip
    assert BusyClock([(0.0, 1.0), (LEAST_GAP, LEAST_GAP + 1)]).gaps == []
    assert BusyClock().total == 0.0


def test_a_trial_that_rested_counts_with_its_last_part():
    assert span(0.0, 100.0, 90.0) == (0.0, 100.0)
    assert span(0.0, 10_000.0, 90.0) == (9_910.0, 10_000.0)
    assert span(None, 3.0, 1.0) is None
    assert span(0.0, None, None) is None
