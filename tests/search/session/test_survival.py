"""The pieces that keep a search alive, each alone: a database that is away, a disk that is full, a
trial that takes too much memory. Whole searches under faults are in `test_chaos`."""

import io
import multiprocessing
import os
import signal
import socket
import threading
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import DataError, OperationalError

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import read_entries
from bitfront.search.ledger.writing import LedgerLostError, persistently
from bitfront.search.session.interrupts import acknowledged, ending_gently, handlers_restored
from bitfront.search.session.progress import Silent
from bitfront.search.session.session import Session
from bitfront.terminal.progress import Progress
from bitfront.trainables.errors import UserError
from bitfront.trainables.worker.worker import Worker
from testbed.rig import POSTGRES, Postgres, small_disk

pytestmark = pytest.mark.slow

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")


def fill(disk):
    with (disk / "filler").open("wb", buffering=0) as out:
        try:
            while out.write(b"\0" * 65536):
                pass
        except OSError:
            pass


def failing(times, cause):
    """A write that does not succeed before its `times`-th attempt."""
    attempts = []

    def write(*_):
        attempts.append(1)
        if len(attempts) < times:
            raise StorageInternalError("rolled back") from cause
        return len(attempts)

    return write


def test_a_database_that_comes_back_is_waited_for():
    away = OperationalError("insert", {}, Exception("connection refused"))
    assert persistently(failing(4, away)) == 4


def test_a_database_that_stays_away_ends_the_search_with_a_word():
    away = OperationalError("insert", {}, Exception("connection refused"))
    with pytest.raises(LedgerLostError, match="connection refused"):
        persistently(failing(1000, away), patience=0.5)


FULL = OperationalError("insert", {}, Exception("database or disk is full"))


def test_a_disk_that_stays_full_is_told_at_once_and_every_so_often(monkeypatch):
    monkeypatch.setattr("bitfront.search.ledger.writing.TELLING_SECONDS", 0.2)
    said = []
    place = Path("/home/me/runs/tiny/ledger.db")
    with pytest.raises(LedgerLostError, match="the disk of /home/me/runs/tiny is full"):
        persistently(failing(1000, FULL), patience=1.0, say=said.append, place=place)
    assert len(said) >= 2
    for text in said:
        assert "the disk of /home/me/runs/tiny is full: waiting, up to 1 s; ctrl-C ends" in text


def test_ctrl_c_ends_the_wait_for_a_disk_although_tune_only_notes_it():
    """Tune's handler of SIGINT raises nothing."""
    with handlers_restored(), ending_gently(), acknowledged(lambda: None):
        signal.signal(signal.SIGINT, lambda number, frame: None)
        said = []

        def say(text):
            said.append(text)
            signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            persistently(failing(1000, FULL), patience=60.0, say=say)
    assert len(said) == 1


def test_a_write_that_can_never_succeed_is_not_repeated():
    write = failing(1000, DataError("insert", {}, Exception("value too long")))
    with pytest.raises(LedgerLostError, match="value too long"):
        persistently(write)
    with pytest.raises(StorageInternalError):
        write()
    assert persistently(failing(1, None)) == 1


def test_an_epoch_told_while_the_ledger_stays_away_ends_the_search_and_not_the_trial(
    make_space, tmp_path
):
    """Tune would take any other exception for the trial's own, and train it again."""
    from bitfront.search.cluster.searcher import LedgerSearcher

    config, space = make_space()
    session = Session(config, space, SearchFolder(tmp_path), None)
    searcher = LedgerSearcher(session, SimpleNamespace(free=lambda running: True))
    searcher.suggest("ray-1")

    def lost(memory):
        raise LedgerLostError("connection refused")

    session._measuring, session._pack = True, lost
    with pytest.raises(KeyboardInterrupt) as ended:
        searcher.on_trial_result("ray-1", {"epoch": 1, "gpu_memory": (1, 2)})
    assert isinstance(ended.value.__cause__, LedgerLostError)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_somebody_who_may_only_read_sees_that_a_search_runs():
    with TemporaryDirectory() as shared:
        folder = SearchFolder(Path(shared) / "search")
        with folder.locked():
            Path(shared).chmod(0o755)
            folder.path.chmod(0o755)
            (folder.path / "lock").chmod(0o644)
            os.seteuid(NOBODY)
            try:
                assert not os.access(folder.path / "lock", os.W_OK, effective_ids=True)
                assert folder.running
                assert folder.driver == (socket.gethostname(), os.getpid())
            finally:
                os.seteuid(0)
        assert not folder.running


def test_a_trial_that_was_written_although_the_answer_was_lost_is_in_the_ledger_once(
    make_space, tmp_path
):
    config, space = make_space()
    session = Session(config, space, SearchFolder(tmp_path), None)
    create = session.ledger.storage.create_new_trial
    lost = OperationalError("commit", {}, Exception("the server closed the connection"))

    def answer_lost(*args):
        session.ledger.storage.create_new_trial = create
        create(*args)
        raise StorageInternalError("rolled back") from lost

    session.ledger.storage.create_new_trial = answer_lost
    entry = session.ask()
    session.finish(entry.id, {"epoch": 1, "val_accuracy": 0.5, "val_loss": 1.0})
    stored = read_entries(SearchFolder(tmp_path).ledger_url, config.name)
    assert [(e.id, e.state) for e in stored] == [(entry.id, "complete")]


@pytest.mark.skipif(not POSTGRES, reason="PostgreSQL is not installed (apt-get install postgresql)")
def test_a_ledger_on_postgresql_outlives_restarts_of_the_server(make_space, tmp_path):
    server = Postgres()
    try:
        config, space = make_space()
        folder = SearchFolder(tmp_path / "tiny")
        folder.path.mkdir()
        folder.set_ledger_url(server.url)
        session = Session(config, space, folder, None)
        for _ in range(3):
            entry = session.ask()
            server.stop()
            back = threading.Timer(1.0, server.start)
            back.start()
            session.finish(entry.id, {"epoch": 1, "val_accuracy": 0.5, "val_loss": 1.0})
            back.join()
        stored = read_entries(folder.ledger_url, config.name)
        assert [e.state for e in stored] == ["complete"] * 3
        assert len({e.id for e in stored}) == 3
    finally:
        server.remove()


@needs_root
def test_a_trial_on_a_full_disk_goes_on_without_its_checkpoint(make_space, tmp_path):
    config, space = make_space()
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    session = Session(config, space, folder, None)
    said = []
    session.progress.say = said.append
    with small_disk(tmp_path / "tiny" / "trials", "1m") as disk:
        fill(disk)
        entry = session.ask()
        trial = Worker(session.trial_config(entry))
        results = [trial.step() for _ in range(3)]
        assert not list(disk.rglob("*.part*"))
    assert [r["done"] for r in results] == [False, False, True]
    assert "not_saved" in results[0]
    for result in results[:2]:
        session.report(entry.id, result)
    session.finish(entry.id, results[-1])
    assert session.ledger.entries[entry.id].state == "complete"
    assert len(said) == 1
    assert "checkpoints cannot be kept" in said[0]


@needs_root
def test_a_ledger_on_a_full_disk_is_written_when_there_is_room_again(make_space, tmp_path):
    config, space = make_space()
    with small_disk(tmp_path / "tiny", "2m") as disk:
        session = Session(config, space, SearchFolder(disk), None)
        entry = session.ask()
        fill(disk)
        room = threading.Timer(1.0, (disk / "filler").unlink)
        room.start()
        history = [{"epoch": n, "val_accuracy": 0.5, "val_loss": 1.0} for n in range(1, 400)]
        session.finish(entry.id, {**history[-1], "history": history})
        room.join()
        stored = read_entries(SearchFolder(disk).ledger_url, config.name)
        assert [(e.state, len(e.history)) for e in stored] == [("complete", 399)]


@needs_root
def test_a_ledger_whose_disk_stays_full_says_so_while_it_waits(make_space, tmp_path, monkeypatch):
    config, space = make_space()
    with small_disk(tmp_path / "tiny", "2m") as disk:
        out = io.StringIO()
        session = Session(
            config, space, SearchFolder(disk), None, progress=partial(Progress, out=out)
        )
        entry = session.ask()
        fill(disk)
        monkeypatch.setattr("bitfront.search.ledger.writing.PATIENCE_SECONDS", 1.0)
        history = [{"epoch": n, "val_accuracy": 0.5, "val_loss": 1.0} for n in range(1, 400)]
        with pytest.raises(LedgerLostError, match=f"the disk of {disk} is full"):
            session.finish(entry.id, {**history[-1], "history": history})
    assert f"the disk of {disk} is full: waiting, up to 1 s" in out.getvalue()


@needs_root
def test_a_search_that_cannot_begin_on_a_full_disk_says_so_in_a_line(tmp_path, capsys):
    from bitfront.cli import main

    with small_disk(tmp_path / "tiny", "2m") as disk:
        fill(disk)
        assert main(["run", "quickstart", "--home", str(disk)]) == 2
    assert capsys.readouterr().err.startswith("error: No space left on device")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


ACTOR = SimpleNamespace(_actor_id=b"actor")


@pytest.fixture
def watched(monkeypatch):
    """A watcher with one running trial: the clock, what was killed, what the session heard."""
    import ray

    from bitfront.search.cluster import watcher

    clock, killed, heard = Clock(), [], []
    monkeypatch.setattr(watcher, "time", clock)
    monkeypatch.setattr(ray, "kill", killed.append)
    monkeypatch.setattr(watcher, "starting", lambda: None)
    session = SimpleNamespace(
        fail=lambda *said: heard.append(said),
        comes_back=lambda trial: False,
        folder=SimpleNamespace(note_wait=lambda why: None),
        progress=mock.Mock(spec=Silent),
    )
    searcher = SimpleNamespace(session=session, trials={"t1": "abcd"})
    trial = SimpleNamespace(
        trial_id="t1", temporary_state=SimpleNamespace(ray_actor=ACTOR), error_file=None
    )
    watch = watcher.Watcher(searcher, report_within=10.0)
    watch.on_trial_start(1, [], trial)
    return SimpleNamespace(watch=watch, clock=clock, killed=killed, heard=heard, trial=trial)


def passing(watched, seconds):
    for _ in range(seconds):
        watched.clock.now += 1
        watched.watch.on_step_end(1, [])


def test_a_silent_worker_is_ended_once_and_its_trial_fails_as_hung(watched):
    passing(watched, 8)
    watched.watch.on_trial_result(1, [], watched.trial, {})
    passing(watched, 9)
    assert watched.killed == []
    passing(watched, 10)
    assert watched.killed == [ACTOR]
    watched.watch.on_trial_error(1, [], watched.trial)
    assert watched.heard == [("abcd", "hung", "no epoch within 10 s (resources.report_within)")]


def test_a_worker_that_died_by_itself_is_no_silent_one(watched):
    watched.watch.on_trial_error(1, [], watched.trial)
    passing(watched, 30)
    assert watched.killed == []
    assert watched.heard == [("abcd", "lost worker", "no word of why")]


def test_a_trial_that_comes_further_between_losses_has_all_its_lives_again(make_space, tmp_path):
    """Machines that are taken back again and again end no long trial; one that dies in the same
    epoch every time is ended."""
    config, space = make_space("resources.retries=2", "task.epochs=9")
    session = Session(config, space, SearchFolder(tmp_path), None)
    trial = session.ask().id
    for epoch in range(1, 7):
        session.report(trial, {"epoch": epoch, "val_accuracy": 0.5})
        assert session.comes_back(trial), f"lost for the {epoch}. time"
        assert session.ask().id == trial
    for epoch in (1, 2):  # its checkpoint was lost too: what it does again takes it no further
        session.report(trial, {"epoch": epoch, "val_accuracy": 0.5})
    assert session.comes_back(trial)
    assert not session.comes_back(trial)
    assert session.ledger.entries[trial].lives == 7


def test_a_trial_that_begins_anew_has_no_epoch_twice(make_space, tmp_path):
    config, space = make_space()
    session = Session(config, space, SearchFolder(tmp_path), None)
    trial = session.ask().id
    for epoch in (1, 2, 1, 2, 3):
        session.report(trial, {"epoch": epoch, "val_accuracy": 0.5})
    session.fail(trial, "error", "told to")
    assert [row["epoch"] for row in session.ledger.entries[trial].history] == [1, 2, 3]


def test_a_trial_whose_end_cannot_be_written_keeps_its_checkpoint(
    make_space, tmp_path, monkeypatch
):
    config, space = make_space()
    session = Session(config, space, SearchFolder(tmp_path), None)
    entry = session.ask()
    state = session.folder.trial_folder(entry.id) / "state.pt"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"two epochs")
    away = OperationalError("update", {}, Exception("connection refused"))
    monkeypatch.setattr("bitfront.search.ledger.writing.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(session.ledger, "_ended", failing(1000, away))
    with pytest.raises(LedgerLostError):
        session.finish(entry.id, {"epoch": 3, "val_accuracy": 0.9})
    session.close()
    assert state.exists()
    assert session.ledger.entries[entry.id].state == "running"
    assert [e.state for e in read_entries(session.folder.ledger_url, config.name)] == ["running"]


def test_a_trial_whose_worker_died_is_asked_for_again_as_often_as_it_may(make_space, tmp_path):
    from ray.tune.search import Searcher

    from bitfront.search.cluster.searcher import LedgerSearcher
    from bitfront.search.cluster.watcher import Watcher

    config, space = make_space("search.trials=1", "resources.retries=1")
    session = Session(config, space, SearchFolder(tmp_path), None)
    searcher = LedgerSearcher(session, SimpleNamespace(free=lambda running: True))
    watch = Watcher(searcher, None)
    first = searcher.suggest("ray-1")
    assert searcher.suggest("ray-2") is None  # not FINISHED: the first may come back
    watch.on_trial_error(1, [], SimpleNamespace(trial_id="ray-1", error_file=None))
    again = searcher.suggest("ray-3")
    assert again["trial"] == first["trial"]
    watch.on_trial_error(1, [], SimpleNamespace(trial_id="ray-3", error_file=None))
    (entry,) = session.ledger.entries.values()
    assert (entry.state, entry.failure, entry.lives) == ("failed", "lost worker", 1)
    assert searcher.suggest("ray-4") == Searcher.FINISHED


def test_time_in_which_the_driver_was_held_up_is_not_held_against_a_trial(watched):
    passing(watched, 5)
    watched.clock.now += 300
    watched.watch.on_step_end(1, [])
    passing(watched, 4)
    assert watched.killed == []
    passing(watched, 3)
    assert watched.killed == [ACTOR]


def leak(gigabytes, out):
    from bitfront.trainables.worker.memory import limit_memory
    from bitfront.trainables.worker.worker import failure

    limit_memory(gigabytes)
    kept = []
    try:
        while len(kept) < 100:
            kept.append(bytearray(16 * 1024**2))
    except MemoryError as error:
        told = failure(error)["failure"]
        size = len(kept)
        kept.clear()
        limit_memory(None)
        kept = [bytearray(16 * 1024**2) for _ in range(40)]
        out.put((told, size, len(kept)))


def test_a_trial_may_take_so_much_memory_and_no_more():
    """In a process of its own, which goes on afterwards."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=leak, args=(0.3, out))
    process.start()
    told, size, afterwards = out.get(timeout=200)
    process.join()
    assert told == "oom"
    assert 10 <= size <= 20
    assert afterwards == 40


def limit_within(out):
    """Set a hard limit as `ulimit -d` does, then limits above and below it and none."""
    import resource

    from bitfront.trainables.worker.memory import limit_memory

    hard = 8 * 10**9
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    found = []
    for gigabytes in (1000, 0.3, None):
        limit_memory(gigabytes)
        found.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
    out.put((hard, found))


def test_a_limit_on_memory_stays_within_the_hard_limit_of_the_process():
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=limit_within, args=(out,))
    process.start()
    hard, (above, below, none) = out.get(timeout=100)
    process.join()
    assert above == none == hard
    assert below < hard


class Gone(io.StringIO):
    """A terminal that was closed, or a log on a full disk."""

    def write(self, text):
        raise BrokenPipeError("nobody listens")


def test_a_search_goes_on_when_nobody_listens_any_more(make_space, tmp_path):
    config, space = make_space()
    session: Any = Session(config, space, SearchFolder(tmp_path), None, progress=Progress)
    session.progress.out = Gone()
    entry = session.ask()
    row = {"epoch": 3, "val_accuracy": 0.9}
    session.report(entry.id, row)
    session.finish(entry.id, {**row, "history": [row]})
    session.progress.say("something")
    session.progress.stop()
    assert session.ledger.entries[entry.id].state == "complete"


def test_an_object_store_with_faults_of_its_own_ends_no_search(make_space, tmp_path, monkeypatch):
    class AzureError(Exception):
        pass

    def refuse(place):
        raise AzureError("away")

    monkeypatch.setattr("bitfront.trainables.worker.storage.forget", refuse)
    config, space = make_space("storage=memory://shared")
    session = Session(config, space, SearchFolder(tmp_path), None)
    entry = session.ask()
    row = {"epoch": 3, "val_accuracy": 0.9}
    session.finish(entry.id, {**row, "history": [row]})
    assert session.ledger.entries[entry.id].state == "complete"
    with pytest.raises(UserError, match=r"storage memory://shared cannot be used: away"):
        session.try_storage()


def test_a_damaged_checkpoint_is_told_and_kept_with_the_trial(make_space, tmp_path, capsys):
    config, space = make_space("search.trials=1")
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    session = Session(config, space, folder, None, progress=Progress)
    entry = session.ask()
    reason = "its checkpoint was damaged (its checksum does not fit): it began again"
    row = {"epoch": 1, "val_accuracy": 0.5, "val_loss": 1.0}
    session.report(entry.id, {**row, "damaged": reason})
    session.finish(entry.id, {**row, "epoch": 3})
    assert reason in capsys.readouterr().out
    (stored,) = read_entries(folder.ledger_url, "tiny")
    assert (stored.state, stored.message) == ("complete", reason)
