"""Reading a ledger beside its writer: nothing is disturbed, only what is new is read, and what is
broken is told in a sentence."""

import math
import os
import sqlite3
from contextlib import contextmanager

import optuna
import pytest

from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import LedgerReader, connected, read_only
from bitfront.search.ledger.records import read_records
from bitfront.trainables.errors import UserError
from testbed.rig import POSTGRES, Postgres


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def finish(ledger, entry):
    metrics = {"epoch": 3, "val_accuracy": 0.9}
    return ledger.tell(entry.id, "complete", metrics, [metrics])


def test_a_second_look_sees_what_changed_and_nothing_else(make_space, url):
    ledger = Ledger(url, *make_space())
    reader = LedgerReader(url, "tiny")
    entry = ledger.ask()
    assert reader.read()
    assert [e.state for e in reader.entries] == ["running"]
    assert not reader.read()
    finish(ledger, entry)
    assert reader.read()
    assert [e.state for e in reader.entries] == ["complete"]
    assert not reader.read()


def test_what_has_ended_is_not_made_again(make_space, url):
    ledger = Ledger(url, *make_space())
    reader = LedgerReader(url, "tiny")
    finish(ledger, ledger.ask())
    reader.read()
    (before,) = reader.entries
    finish(ledger, ledger.ask())
    assert reader.read()
    assert reader.entries[0] is before
    assert len(reader.entries) == 2


def test_reference_and_layers_come_with_the_trials(make_space, url):
    ledger = Ledger(url, *make_space())
    entry = ledger.ask()
    reader = LedgerReader(url, "tiny")
    reader.read()
    assert reader.reference == ledger.reference
    layers = reader.networks.of(entry.spec.task)
    assert [layer.name for layer in layers] == [
        layer.name for layer in ledger.networks.of(entry.spec.task)
    ]
    assert len(layers) == len(entry.spec.plan)


def test_a_reader_cannot_write_and_keeps_no_lock(make_space, url, tmp_path):
    ledger = Ledger(url, *make_space())
    ledger.ask()
    reader = LedgerReader(url, "tiny")
    reader.read()
    with connected(url) as query, pytest.raises(sqlite3.OperationalError, match="readonly"):
        query("DELETE FROM trials", {})
    # Another process can take the whole file for itself at once.
    with sqlite3.connect(tmp_path / "ledger.db", timeout=0) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.rollback()
    assert finish(ledger, ledger.ask()).state == "complete"


def test_a_ledger_that_is_not_there_yet_is_empty_and_found_later(make_space, url, tmp_path):
    reader = LedgerReader(url, "tiny")
    assert not reader.read()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "ledger.db").touch()  # the driver is about to make its tables
    assert not reader.read()
    Ledger(url, *make_space()).ask()
    assert reader.read()
    assert len(reader.entries) == 1


def test_a_ledger_that_was_begun_anew_replaces_the_old_one(make_space, url, tmp_path):
    reader = LedgerReader(url, "tiny")
    ledger = Ledger(url, *make_space())
    finish(ledger, ledger.ask())
    finish(ledger, ledger.ask())
    reader.read()
    ledger.storage.remove_session()
    for file in tmp_path.glob("ledger.db*"):
        file.rename(tmp_path / f"old-{file.name}")
    assert reader.read()
    assert reader.entries == []
    Ledger(url, *make_space()).ask()
    assert reader.read()
    assert [e.state for e in reader.entries] == ["running"]


def test_a_broken_ledger_is_a_sentence(tmp_path, url):
    (tmp_path / "ledger.db").write_bytes(b"this is no database, though it is long enough" * 50)
    with pytest.raises(UserError, match="the ledger of 'tiny' cannot be read"):
        LedgerReader(url, "tiny").read()


def test_a_trial_of_another_version_is_a_sentence(make_space, url):
    ledger = Ledger(url, *make_space())
    ledger.ask()
    ledger.study.ask()
    with pytest.raises(UserError, match="trial 1 is of another version"):
        LedgerReader(url, "tiny").read()


def test_a_reader_knows_of_trials_what_the_driver_does(make_space, url):
    """It does not read them as Optuna does: no levels of plans, no object a trial."""
    ledger = Ledger(url, *make_space())
    ended = [finish(ledger, ledger.ask()) for _ in range(3)]
    ledger.tell(ledger.ask().id, "failed", failure="error", message="for a reason")
    ledger.ask()
    reader = LedgerReader(url, "tiny")
    reader.read()
    resumed = list(Ledger(url, *make_space()).entries.values())
    assert [e.spec for e in reader.entries] == [e.spec for e in resumed]  # looked at, so checked
    assert reader.entries == resumed
    assert [e.drawn for e in reader.entries[:3]] == [e.drawn for e in ended]
    assert all("optimizer.lr" in e.drawn or e.drawn for e in reader.entries)


def test_a_spec_of_another_version_is_told_when_it_is_read(make_space, url, tmp_path):
    Ledger(url, *make_space()).ask()
    with sqlite3.connect(tmp_path / "ledger.db") as database:
        database.execute(
            "UPDATE trial_user_attributes SET value_json = '{\"task\": 1}' WHERE key = 'spec'"
        )
    with pytest.raises(UserError, match="trial 0 of the ledger is damaged, or of another version"):
        LedgerReader(url, "tiny").read()


def test_what_is_read_back_is_what_optuna_reads(make_space, url):
    """All of a trial, for a driver that resumes."""
    ledger = Ledger(url, *make_space())
    finish(ledger, ledger.ask())
    ledger.ask()
    plain = optuna.load_study(study_name="tiny", storage=url)
    assert Ledger(url, *make_space()).study.get_trials() == plain.get_trials()


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e-300, 0.5])
def test_every_value_of_an_objective_is_read(url, value):
    study = optuna.create_study(study_name="tiny", storage=url)
    study.add_trial(optuna.trial.create_trial(value=value))
    with connected(url) as query:
        (record,) = read_records(query, 1, 0, [])
    assert record.values == [value]


def test_more_open_trials_than_a_statement_takes_are_read(url, monkeypatch):
    monkeypatch.setattr("bitfront.search.ledger.records.MOST_OPEN", 2)
    study = optuna.create_study(study_name="tiny", storage=url)
    for _ in range(6):
        study.ask()
    with connected(url) as query:
        found = read_records(query, 1, 5, [2, 3, 5])
    assert {2, 3, 5, 6} <= {record.trial_id for record in found}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_can_be_read(make_space, url, tmp_path):
    ledger = Ledger(url, *make_space())
    finish(ledger, ledger.ask())
    ledger.storage.remove_session()
    tmp_path.chmod(0o500)
    try:
        reader = LedgerReader(url, "tiny")
        assert reader.read()
    finally:
        tmp_path.chmod(0o700)


def test_odd_names_of_folders_are_read(make_space, tmp_path):
    odd = tmp_path / "100 % #1"
    odd.mkdir()
    url = f"sqlite:///{odd / 'ledger.db'}"
    Ledger(url, *make_space()).ask()
    reader = LedgerReader(url, "tiny")
    assert reader.read()
    assert len(reader.entries) == 1


def test_other_databases_keep_their_address():
    assert read_only("mysql://host/name") == "mysql://host/name"
    assert read_only("postgresql+asyncpg://host/name") == "postgresql+asyncpg://host/name"


@pytest.mark.parametrize(
    ("installed", "driver"),
    [
        (["psycopg"], "psycopg"),
        (["psycopg2"], "psycopg2"),
        (["psycopg", "psycopg2"], "psycopg"),
        ([], "psycopg"),  # the one to ask for
    ],
)
def test_postgresql_is_reached_by_the_driver_that_is_there(installed, driver, monkeypatch):
    monkeypatch.setattr("bitfront.search.urls.find_spec", lambda name: name in installed or None)
    for scheme in ("postgresql", "postgres"):
        assert read_only(f"{scheme}://host/name") == f"postgresql+{driver}://host/name"


def test_a_journal_that_must_be_put_right_is_read_by_a_connection_that_may(
    make_space, tmp_path, monkeypatch
):
    """As when a driver is killed, or is just making its ledger."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    config, space = make_space()
    Ledger(url, config, space).ask()
    usual, opened = sqlite3.connect, []

    def connect(address, **options):
        opened.append(address.rpartition("?")[2])
        if opened[-1] == "mode=ro":
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return usual(address, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    reader = LedgerReader(url, config.name)
    assert reader.read()
    assert len(reader.entries) == 1
    assert opened == ["mode=ro", "mode=rw"]


@pytest.mark.parametrize("statement", range(2, 6))
def test_a_trial_that_ends_while_it_is_read_is_read_again(make_space, url, monkeypatch, statement):
    """A reader's statements are not one: whatever the driver writes between two of them, a trial
    is never taken for complete without its values, and a new one never for damaged."""
    ledger = Ledger(url, *make_space())
    entry = ledger.ask()
    begun = []

    @contextmanager
    def interrupted(*args):
        with connected(*args) as query:

            def run(text, values):
                begun.append(text)
                if len(begun) == statement:
                    finish(ledger, entry)
                    ledger.ask()
                return query(text, values)

            yield run

    reader = LedgerReader(url, "tiny")
    with monkeypatch.context() as patch:
        patch.setattr("bitfront.search.ledger.reader.connected", interrupted)
        reader.read()
    reader.read()
    assert [(e.state, e.values is None) for e in reader.entries] == [
        ("complete", False),
        ("running", True),
    ]


@pytest.mark.skipif(not POSTGRES, reason="PostgreSQL is not installed")
def test_a_ledger_on_postgresql_is_read_as_its_driver_knows_it(make_space):
    server = Postgres()
    try:
        ledger = Ledger(server.url, *make_space())
        finish(ledger, ledger.ask())
        ledger.ask()
        reader = LedgerReader(server.url, "tiny")
        assert reader.read()
        resumed = list(Ledger(server.url, *make_space()).entries.values())
        assert [e.spec for e in reader.entries] == [e.spec for e in resumed]
        assert reader.entries == resumed
        assert reader.reference == ledger.reference
    finally:
        server.remove()


def test_a_journal_is_read_by_those_who_may_not_write(make_space, url, tmp_path, monkeypatch):
    """A colleague's running search: most of it may still be in the journal."""
    ledger = Ledger(url, *make_space())
    ledger.ask()
    assert (tmp_path / "ledger.db-wal").exists()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "mode=ro" in read_only(url)
    (tmp_path / "ledger.db-wal").rename(tmp_path / "elsewhere")
    assert "immutable=1" in read_only(url)
