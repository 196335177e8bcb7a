"""Pausing: who rests, who is taken up, who is given up, and what survives the end of a driver."""

import pytest

from bitfront.search.config.errors import ConfigError
from bitfront.search.deciding.pausing import Hopes, Pausing, Telling, saving
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import LedgerReader, read_entries
from bitfront.search.results.results import Results
from bitfront.search.session.rehearsal import rehearse
from bitfront.search.session.session import Session
from bitfront.terminal.status import decision_lines
from testbed.problems import synthetic
from testbed.simulator import simulate

EPOCHS = 10
PAUSE = "search.pause={rungs: [0.3], least: 4, control: 0"


def end_of(entry):
    """Dear networks are better; the rest has nothing to do with the cost."""
    return 0.5 + 0.3 * entry.costs["flops_pct"] / 100 + (int(entry.id, 16) % 97) / 970


def row(epoch, end):
    return {"epoch": epoch, "val_accuracy": end * epoch / EPOCHS}


def train(session, entry, size=100):
    """A trial as a worker reports it, from where it rested; returns its last epoch."""
    begun = entry.history[-1]["epoch"] if entry.history else 0
    for epoch in range(begun + 1, EPOCHS + 1):
        result = {**row(epoch, end_of(entry)), "done": epoch == EPOCHS}
        result["measured"] = ["epoch", "val_accuracy"]
        if epoch == 3:
            result["kept_bytes"] = size
            session.folder.trial_folder(entry.id).mkdir(parents=True, exist_ok=True)
            (session.folder.trial_folder(entry.id) / "state.pt").write_bytes(b"x")
        if session.gives_up(entry.id, result) or result["done"]:
            history = [row(i, end_of(entry)) for i in range(1, epoch + 1)]
            session.finish(entry.id, {**result, "history": history})
            return epoch
        session.report(entry.id, result)
    raise AssertionError("a trial without an end")


@pytest.fixture
def open_session(make_space, tmp_path):
    """A turn at a search that pauses; the next call is the next turn at the same one."""

    def open_(more="", trials=16):
        config, space = make_space(
            f"{PAUSE}{more}}}",
            "search.sampler=free-cost",
            f"search.trials={trials}",
            f"task.epochs={EPOCHS}",
        )
        folder = SearchFolder(tmp_path)
        folder.config_file.write_text(config.dump())
        return Session(config, space, folder, tracker=None)

    return open_


def run(session, most=1000):
    """(id, last epoch) of every turn at a trial, in order, until the search is over."""
    found = []
    while len(found) < most and (entry := session.ask()) is not None:
        found.append((entry.id, train(session, entry)))
    return found


def test_a_trial_rests_with_its_curve_and_is_taken_up_where_it_rested(open_session, tmp_path):
    session = open_session()
    turns = run(session)
    rested = [key for key, epoch in turns if epoch == 3]
    again = [key for key, epoch in turns if epoch == EPOCHS and key in rested]
    assert again
    assert set(rested) - set(again)
    stored = {e.id: e for e in read_entries(SearchFolder(tmp_path).ledger_url, "tiny")}
    assert len(stored) == 16
    for key in again:
        assert stored[key].state == "complete"
        assert stored[key].rung == 0.3
        assert [r["epoch"] for r in stored[key].history] == list(range(1, EPOCHS + 1))
    resting = set(rested) - set(again)
    assert {e.id for e in stored.values() if e.state == "paused"} == resting
    assert session.paused == len(resting)
    assert all(len(stored[key].history) == 3 and stored[key].ended is None for key in resting)
    assert not resting & set(session.front.keys)
    assert session.complete
    session.close()
    assert {f.name for f in (tmp_path / "trials").iterdir()} == resting
    results = Results.of(SearchFolder(tmp_path))
    assert results.state == "complete"
    told = results.status_json()
    assert told["trials"]["paused"] == len(resting)
    assert told["pause"]["resting"] == len(resting)
    assert told["early_stopping"] is None
    assert any("weighed at a rung" in line for line in decision_lines(results))


def test_a_resumed_search_pauses_and_takes_up_as_the_undisturbed_one(open_session, tmp_path):
    expected = run(open_session(trials=12))
    assert 3 in dict(expected).values()
    (tmp_path / "ledger.db").rename(tmp_path / "straight.db")
    found = []
    while len(found) < len(expected):
        (tmp_path / "trials").rename(tmp_path / f"trials{len(found)}")
        found += run(open_session(trials=12), 5)
    assert found == expected


def test_a_reader_sees_a_trial_rest_and_go_on(open_session, tmp_path):
    session = open_session()
    reader = LedgerReader(SearchFolder(tmp_path).ledger_url, "tiny")
    entry = session.ask()
    states = []
    session.ledger.pause(entry.id, 0.3, [row(3, 0.5)], 7)
    for change in (lambda: None, lambda: session.ledger.take_up(entry.id)):
        change()
        assert reader.read()
        (seen,) = reader.entries
        states.append((seen.state, seen.rung, seen.kept_bytes, len(seen.history)))
    assert states == [("paused", 0.3, 7, 1), ("running", 0.3, 7, 1)]
    # The driver was killed while the trial ran again: it is the next one to continue.
    after = open_session()
    assert after.ask().id == entry.id
    assert not after.gives_up(entry.id, {**row(3, 0.5), "done": False})


def test_checkpoints_are_bounded_in_number_and_in_bytes(open_session):
    for bound, most in ((", checkpoints: 2", 2), (", gb: 3.0e-7", 3)):
        session = open_session(bound)
        for _ in range(14):
            entry = session.ask()
            if entry is None:
                break
            train(session, entry)
            assert session.paused <= most
        stopped = [e for e in session.ledger.entries.values() if e.state == "stopped"]
        assert stopped
        assert all(e.metrics["stopped_at"] == 0.3 for e in stopped)
        kept = {f.name for f in (session.folder.path / "trials").iterdir()}
        assert not kept & {e.id for e in stopped}
        (session.folder.path / "ledger.db").unlink()


def test_the_trial_that_promises_most_per_epoch_is_taken_up(open_session):
    session = open_session()
    paused = [session.ask() for _ in range(3)]
    for entry in paused:
        session.ledger.pause(entry.id, 0.3, [row(i, 0.5) for i in (1, 2, 3)], 10)
    gains = dict(zip((e.id for e in paused), (0.1, 0.3, 0.2), strict=True))
    rule = Pausing(session.config, session.ledger)
    for new, chosen in ((0.0, paused[1]), (0.4, paused[1]), (10.0, None)):
        session.ledger.hopes = lambda new=new: Hopes(new, gains)
        assert rule.next() is chosen


def test_rungs_that_tell_nothing_let_all_trials_run_to_their_end(make_space, tmp_path):
    """The accuracy before the last epoch has nothing to do with the last one."""
    problem = synthetic(8, False, 0)
    pause = "search.pause={rungs: [0.3], least: 6}"
    config, _ = make_space(pause, "search.trials=16", "search.sampler=free-cost")
    config = problem.config.model_copy(update={"search": config.search})
    answer = problem.answer(0)

    def misleading(entry):
        return [(int(entry.id, 16) >> i) % 89 / 100 for i in range(8)] + [answer(entry)[-1]]

    session = simulate(config, problem.space(), misleading, 2).session
    assert session.ledger.count("complete") == 16
    told = saving(config, list(session.ledger.entries.values()), set())
    assert not told.rungs[0].tells
    assert "tells nothing" in told.sentence()
    # With its own curves the same search rests.
    session = simulate(config, problem.space(), answer, 2).session
    told = saving(config, list(session.ledger.entries.values()), set())
    assert told.rungs[0].tells
    assert told.weighed
    assert 0 < told.saved < 0.7


def test_what_a_rung_tells_is_asked_of_trials_that_never_rested(open_session):
    session = open_session()
    for number in range(8):
        entry = session.ask()
        end = 0.5 + number / 100
        curve = [row(i, end) for i in range(1, 11)]
        if number % 2:
            session.ledger.pause(entry.id, 0.3, curve[:3], 1)
            session.ledger.take_up(entry.id)
        session.ledger.tell(entry.id, "complete", curve[-1], curve)
    entries = session.ledger.entries.values()
    found = Telling.of(entries, 0.3, "val_accuracy", 4)
    assert (found.trials, found.tau, found.tells) == (4, 1.0, True)
    assert not Telling.of(entries, 0.3, "val_accuracy", 5).tells


def test_control_trials_and_repeats_never_rest(open_session):
    session = open_session()
    session.pausing.spec = session.pausing.spec.model_copy(update={"control": 1.0})
    assert {epoch for _, epoch in run(session, 12)} == {EPOCHS}


def test_pausing_asks_for_a_sampler_that_foresees_and_for_no_early_stopping(make_config):
    with pytest.raises(ConfigError, match="cannot say what trials promise"):
        make_config("search.pause=true", "search.sampler=tpe")
    with pytest.raises(ConfigError, match="take one of the two"):
        make_config("search.pause=true", "search.early_stopping=true", "search.sampler=free-cost")


def test_a_rehearsal_pauses(make_space):
    config, space = make_space(
        f"{PAUSE}}}", "search.sampler=free-cost", "search.trials=14", f"task.epochs={EPOCHS}"
    )
    found = rehearse(config, space)
    assert found.paused
    assert found.complete + found.paused == 14
