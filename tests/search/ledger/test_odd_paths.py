"""A home may be called anything a disk can hold: the ledger and MLflow's runs are in it, and
nothing is anywhere else."""

import os
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from bitfront.search import urls
from bitfront.search.cluster.doctor import check_ledger
from bitfront.search.config.space import build_space
from bitfront.search.ledger.folder import SearchFolder, list_searches
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import connected, read_entries, read_only
from bitfront.search.ledger.storage import LedgerStorage
from bitfront.search.ledger.writing import LedgerLostError
from bitfront.search.results.results import Results
from bitfront.search.session.session import Session
from bitfront.search.tracking.tracker import Tracker
from bitfront.search.urls import sqlite_for_mlflow, sqlite_path, sqlite_url, with_whole_path

pytestmark = pytest.mark.slow

NAMES = [
    "what?",
    "a%41b",
    "a%3Fb?c%",
    "#1",
    "two words",
    'it\'s "quoted"',
    "größe 数",
    "c:d@e",
    "{x}",
    "[ab]*",
    "k=v&token=t;key=u",
    "+plus",
    "back\\slash",
]


def begun(make_config, root, *words):
    config = make_config(*words)
    folder = SearchFolder(root / "tiny")
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(config.dump())
    return config, folder


def finish(ledger):
    entry = ledger.ask()
    metrics = {"epoch": 3, "val_accuracy": 0.9, "val_loss": 0.1}
    return ledger.tell(entry.id, "complete", metrics, [metrics])


@pytest.mark.parametrize("name", NAMES)
def test_a_ledger_is_where_its_search_is_whatever_the_folder_is_called(make_config, tmp_path, name):
    root = tmp_path / name
    config, folder = begun(make_config, root)
    finish(Ledger(folder.ledger_url, config, build_space(config)))
    assert sqlite_path(folder.ledger_url) == folder.path / "ledger.db"
    with sqlite3.connect(folder.path / "ledger.db") as there:
        assert there.execute("SELECT COUNT(*) FROM trials").fetchone() == (1,)
    assert len(Results.of(folder).front) == 1
    assert [f.path for f in list_searches(root)] == [folder.path]
    assert check_ledger(folder.ledger_url).verdict != "FAIL"
    with create_engine(read_only(folder.ledger_url)).connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM trials")).scalar() == 1
    assert LedgerStorage(read_only(folder.ledger_url), skip_table_creation=True).get_all_studies()
    # Another driver finds it, and nothing is beside the home.
    assert len(Ledger(folder.ledger_url, config, build_space(config)).entries) == 1
    assert os.listdir(tmp_path) == [name]


def test_runs_and_artifacts_are_in_the_home_whatever_it_is_called(make_space, tmp_path):
    name = "a%41b?{x} #1"
    root = tmp_path / name
    config, space = make_space("search.trials=1")
    folder = SearchFolder(root / "tiny")
    folder.path.mkdir(parents=True)
    tracker = Tracker(config, folder.identity, root)
    session = Session(config, space, folder, tracker)
    entry = session.ask()
    session.finish(entry.id, {"epoch": 3, "val_accuracy": 0.9, "val_loss": 0.1})
    # Without the thread, which has no time to lose where making the tables takes half a minute.
    tracker._flush()
    assert tracker._finished("complete", {"note.txt": "hello"}, "summary"), tracker.last_error
    with sqlite3.connect(root / "mlflow.db") as there:
        assert there.execute("SELECT COUNT(*) FROM runs").fetchone() == (2,)
    assert len(list((root / "mlartifacts").rglob("note.txt"))) == 1
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unquotes", [True, False], ids=["SQLAlchemy 2.1", "SQLAlchemy 2.0"])
def test_an_address_goes_to_its_file_and_back(tmp_path, monkeypatch, name, unquotes):
    """2.0 takes a path as it stands; what is made for it must not be quoted."""
    path = tmp_path / name / "ledger.db"
    assert sqlite_path(sqlite_url(path)) == path
    monkeypatch.setattr(urls, "_unquotes", lambda: unquotes)
    told = urls.understood(sqlite_url(path))
    if unquotes or "?" in name:
        assert sqlite_path(told) == path
    else:
        assert told == f"sqlite:///{path}"
    if unquotes:
        path.parent.mkdir()
        with create_engine(sqlite_for_mlflow(path)).connect() as connection:
            connection.execute(text("CREATE TABLE t (x)"))
        assert path.exists()


def test_a_plain_path_is_shown_as_it_is():
    plain = Path("/home/me/my runs/ledger.db")
    assert sqlite_url(plain) == f"sqlite:///{plain}" == sqlite_for_mlflow(plain)
    assert (
        with_whole_path("sqlite:///x.db?timeout=3")
        == f"sqlite:///{Path('x.db').resolve()}?timeout=3"
    )
    assert with_whole_path("postgresql://host/name") == "postgresql://host/name"
    assert sqlite_path("postgresql://host/name") is None


@pytest.mark.parametrize("how", ["deleted", "replaced"])
@pytest.mark.parametrize("moment", ["ask", "report", "finish"])
def test_a_ledger_that_is_lost_while_a_search_runs_is_noticed_and_kept(
    make_space, tmp_path, how, moment
):
    config, space = make_space("search.trials=6")
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    session = Session(config, space, folder, None)
    done, entry = session.ask(), session.ask()
    row = {"epoch": 1, "val_accuracy": 0.5, "val_loss": 1.0}
    session.finish(done.id, row)
    file = folder.path / "ledger.db"
    for part in folder.path.glob("ledger.db*"):
        part.unlink()
    if how == "replaced":
        file.write_bytes(b"")
    act = {
        "ask": session.ask,
        "report": lambda: session.report(entry.id, row),
        "finish": lambda: session.finish(entry.id, row),
    }[moment]
    with pytest.raises(LedgerLostError, match=how) as lost:
        act()
    assert "resume tiny" in lost.value.hint
    rescued = folder.path / "ledger-rescued.db"
    assert file.exists() == (how == "replaced")
    rescued.rename(file)
    states = {e.id: e.state for e in read_entries(folder.ledger_url, "tiny")}
    assert states == {done.id: "complete", entry.id: "running"}
    with connected(folder.ledger_url) as query:
        assert next(iter(query("PRAGMA integrity_check", {})))[0] == "ok"
    assert len(Session(config, space, folder, None).ledger.entries) == 2


def test_a_folder_that_is_gone_is_told_too(make_space, tmp_path):
    config, space = make_space("search.trials=6")
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    session = Session(config, space, folder, None)
    session.ask()
    folder.path.rename(tmp_path / "elsewhere")
    with pytest.raises(LedgerLostError, match="deleted") as lost:
        session.ask()
    assert "could not be kept" in lost.value.hint
