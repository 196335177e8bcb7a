"""Reads a ledger while a driver writes it: makes no table, holds no lock, and a second look reads
only what is new. Writing is in `ledger`."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bitfront.search.deciding.ending import ENDING, Reached
from bitfront.search.deciding.outlook import OUTLOOK, Outlook
from bitfront.search.garbage import uncollected
from bitfront.search.ledger.entry import LOOK, PAUSE, Entry, are_numbers, stored_entry
from bitfront.search.ledger.networks import Networks
from bitfront.search.ledger.records import (
    FORMAT_KEY,
    Query,
    Record,
    arranged,
    check_ledger_format,
    drawn,
    objectives_in_order,
    query_of,
    read_records,
    study_id,
    study_notes,
    study_objectives,
)
from bitfront.search.ledger.states import OPTUNA_OPEN
from bitfront.search.model_health import HEALTH, ModelHealth
from bitfront.search.session.rows import ROWS, RowNote, notes_from_json
from bitfront.search.urls import sqlite_path, sqlite_uri, with_driver
from bitfront.trainables.errors import UserError, first_line

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

# Byte 18 of a SQLite file with a rollback journal; with a write-ahead log it is 2.
ROLLBACK = b"\x01"
# Part of SQLite's error for a file that a driver has made but not written to yet.
NOT_YET = "no such table"
# Errors that damaged rows cause: wrong types, bad JSON, missing keys.
DAMAGED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)
# Part of SQLite's error where a journal must be recovered first.
RECOVERY = "readonly database"
# Part of a database's message for a user who may not do something.
NO_RIGHT = "permission denied"
RIGHTS = (
    "this user of the database may not do what a search does: docs/cluster.md, 'Several people, "
    "one database', has the lines that allow it, and bitfront doctor --ledger URL tries it"
)


class LedgerReader:
    """The trials of one search, as they were at the last `read`."""

    def __init__(
        self,
        url: str,
        name: str,
        objectives: Mapping[str, str] | None = None,
        owner: str | None = None,
    ) -> None:
        """`objectives` are "max" or "min" by name, in the order in which values are returned; by
        default the order of the ledger. `owner` is the identity of the search in a database that
        may hold others: a study of the same name that belongs to another one is not read."""
        self.url = url
        self.owner = owner
        self.name = name
        self.objectives = objectives
        self.reference: list[float] | None = None
        self.networks = Networks()
        self.model: ModelHealth | None = None
        """how good the model of the sampler is; None where it has none"""
        self.outlook: Outlook | None = None
        """what the next trials may add to the front; None where that is not known"""
        self.ending: Reached | None = None
        """what ended the search before its number of trials"""
        self.rows: dict[str, RowNote] = {}
        self.environment: dict[str, str] = {}
        self._order: list[str] = []
        self._entries: dict[int, Entry] = {}
        self._recovering = False
        self._last = 0
        self._open_trials: set[int] = set()
        self._pauses: dict[int, list[str | None]] = {}
        self._seen: tuple[tuple[int, ...], ...] | None = None
        self._lock = threading.Lock()

    @property
    def entries(self) -> list[Entry]:
        """The trials, in the order in which they started."""
        return list(self._entries.values())

    def read(self) -> bool:
        """Read what is new; True when something has changed. A ledger that was deleted, or that the
        driver has not written to yet, has no trials."""
        with self._lock:
            stamp = self._stamp()
            if stamp is not None and stamp == self._seen:
                return False
            gone = self._other_file(stamp)
            if gone:
                self._forget()
            if stamp == ():
                return gone
            try:
                with uncollected():
                    changed = self._read_recovered()
            except database_errors() as error:
                reason = first_line(error)
                if NOT_YET in reason:
                    return gone
                raise UserError(
                    f"the ledger of '{self.name}' cannot be read: {reason}", hint_for(reason)
                ) from None
            except DAMAGED as error:
                raise UserError(
                    f"the ledger of '{self.name}' is damaged: {first_line(error)}"
                ) from None
            self._seen = stamp
            return changed or gone

    def _read_recovered(self) -> bool:
        """Read; where a killed writer left a journal, open the file for writing, so that SQLite
        recovers it."""
        try:
            return self._read()
        except database_errors() as error:
            if RECOVERY not in first_line(error):
                raise
        self._recovering = True
        return self._read()

    def _read(self) -> bool:
        with connected(self.url, self._recovering) as query:
            study = study_id(query, self.name)
            if study is None:
                return False
            if self.reference is None:  # before anything else is read
                notes = study_notes(query, study)
                if self.owner is not None and notes.get("owner", self.owner) != self.owner:
                    return False
                check_ledger_format(notes.get(FORMAT_KEY), self.name)
            found = read_records(query, study, self._last, self._open_trials, plans=False)
            fresh = [r for r in found if self._is_new(r)]
            if fresh or self.reference is None:
                notes = study_notes(query, study)
                names, modes = study_objectives(query, study)
                asked = self.objectives or dict(zip(names, modes, strict=False))
                self._order = objectives_in_order(asked, names, modes)
                self.reference = self._arranged(_checked_reference(notes.get("reference")))
                self.networks = Networks.from_json(notes.get("networks"))
                self.rows = notes_from_json(notes.get(ROWS))
                self.model = ModelHealth.from_json(notes.get(HEALTH))
                self.outlook = Outlook.from_json(notes.get(OUTLOOK))
                self.ending = Reached.from_json(notes.get(ENDING))
                self.environment = _texts(notes.get("environment", {}))
        for record in fresh:
            self._entries[record.number] = self._entry(record)
            self._last = max(self._last, record.trial_id)
            self._pauses[record.number] = _pauses(record)
            if record.state in OPTUNA_OPEN:
                self._open_trials.add(record.trial_id)
            else:
                self._open_trials.discard(record.trial_id)
        if fresh:  # a ledger of another version is an error now, not when a spec is first used
            _ = self._entries[fresh[0].number].spec
        return bool(fresh)

    def _arranged(self, values: list[float] | None) -> list[float] | None:
        if values is None:
            return None
        return arranged(values, self._order, self.objectives or self._order)

    def _entry(self, record: Record) -> Entry:
        wanted = list(self.objectives or self._order)
        return _entry(record, self.name, self._arranged(record.values), wanted)

    def _is_new(self, record: Record) -> bool:
        known = self._entries.get(record.number)
        if known is None or (known.ended is None and record.state not in OPTUNA_OPEN):
            return True
        return self._pauses.get(record.number) != _pauses(record)

    def _stamp(self) -> tuple[tuple[int, ...], ...] | None:
        """Inodes, sizes and times of the files of a SQLite ledger, which change when it is written;
        () where there is none, None for other databases."""
        path = sqlite_path(self.url)
        if path is None:
            return None
        return tuple(
            (found.st_ino, found.st_size, found.st_mtime_ns)
            for suffix in ("", "-wal")
            if (found := _stat(f"{path}{suffix}")) is not None
        )

    def _other_file(self, stamp: tuple[tuple[int, ...], ...] | None) -> bool:
        """Whether the ledger was deleted since the last read, and perhaps made again."""
        return bool(self._seen and (not stamp or stamp[0][0] != self._seen[0][0]))

    def _forget(self) -> None:
        self._entries, self.reference, self.networks = {}, None, Networks()
        self._recovering, self._seen = False, None
        self._last, self._open_trials, self._pauses = 0, set(), {}


def read_entries(url: str, name: str, owner: str | None = None) -> list[Entry]:
    """All trials of a search; may be called while a driver writes."""
    reader = LedgerReader(url, name, owner=owner)
    reader.read()
    return reader.entries


@contextmanager
def ledger_errors(name: str) -> Iterator[None]:
    """Turn what Optuna raises for a damaged database into a UserError of one sentence."""
    from optuna.exceptions import OptunaError

    known: tuple[type[Exception], ...] = (OptunaError, *database_errors(), *DAMAGED)
    try:
        yield
    except known as error:
        cause = error.__cause__ if isinstance(error, OptunaError) and error.__cause__ else error
        reason = first_line(cause)
        raise UserError(
            f"the ledger of '{name}' cannot be read: {type(cause).__name__}: {reason}",
            hint_for(reason),
        ) from error


def hint_for(reason: str) -> str | None:
    """What to do about an error of the database, where that is known."""
    return RIGHTS if NO_RIGHT in reason else None


def read_only(url: str) -> str:
    """The URL with which SQLAlchemy opens a SQLite ledger read-only; other databases have users and
    rights for that."""
    path = sqlite_path(url)
    if path is None:
        return with_driver(url)
    return sqlite_uri(path, f"{_reading_mode(path)}&")


def _reading_mode(path: Path) -> str:
    # To open a database with a write-ahead log SQLite makes files beside it, which fails in a
    # folder that cannot be written. Where no log is left there, nothing is missing in the database
    # itself, and it can be opened as immutable.
    if os.access(path.parent, os.W_OK) or path.with_name(f"{path.name}-wal").exists():
        return "mode=ro"
    try:
        with path.open("rb") as file:
            return "mode=ro" if file.read(19)[18:] == ROLLBACK else "immutable=1"
    except OSError:  # SQLite says what is wrong with it
        return "mode=ro"


@contextmanager
def connected(url: str, writable: bool = False) -> Iterator[Query]:
    """Yield a function that runs statements on a ledger. SQLite is used directly: importing
    SQLAlchemy takes longer than reading a thousand trials."""
    path = sqlite_path(url)
    if path is None:
        with _engine(with_driver(url)).connect() as server:
            yield query_of(server)
        return
    mode = "mode=rw" if writable else _reading_mode(path)
    with closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)) as connection:
        yield connection.execute


@cache
def _engine(address: str) -> Engine:
    from sqlalchemy import create_engine

    return create_engine(address, **server_options(address))


def server_options(address: str) -> dict[str, Any]:
    """How SQLAlchemy connects to a database server."""
    # A server that was restarted has closed the connections kept for later.
    options: dict[str, Any] = {"pool_pre_ping": True}
    if address.startswith("postgresql"):
        # One set up without a locale has databases in SQL_ASCII: their text would come as bytes.
        options["connect_args"] = {"client_encoding": "utf8"}
    return options


def database_errors() -> tuple[type[Exception], ...]:
    """The errors of databases; a function, since it imports SQLAlchemy."""
    from sqlalchemy.exc import SQLAlchemyError

    return sqlite3.Error, SQLAlchemyError, ImportError


def _entry(record: Record, name: str, values: list[float] | None, objectives: list[str]) -> Entry:
    try:
        texts = dict(record.known)
        spec = texts.pop("spec")  # parsed when it is first read
        # Parsed with one call: for short texts the call itself takes most of the time.
        known = dict(zip(texts, json.loads(f"[{','.join(texts.values())}]"), strict=True))
        known["spec"] = spec
        when = record.started, record.ended
        return stored_entry(
            record.number, record.state, known, drawn(record), values, *when, objectives
        )
    except KeyError:
        raise UserError(
            f"the ledger of '{name}' cannot be read: trial {record.number} is of another version"
        ) from None
    except UserError as error:
        raise UserError(f"the ledger of '{name}' cannot be read: {error.message}") from None


def _pauses(record: Record) -> list[str | None]:
    """What changes of a trial while it is open."""
    return [record.known.get(PAUSE), record.known.get(LOOK)]


def _checked_reference(stored: Any) -> list[float] | None:
    if stored is None or (isinstance(stored, list) and are_numbers(stored)):
        return stored
    raise ValueError("its reference point")


def _texts(stored: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in stored.items()}


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
