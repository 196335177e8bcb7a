"""Reading a ledger while somebody else writes it: no table is made, no lock is kept, and a second
look reads only what is new."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import optuna
from optuna.exceptions import StorageInternalError
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from search.networks import Networks
from search.study import Entry, entry_of
from trainables.registry import UserError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

SQLITE = "sqlite:///"
# What a file says that a driver has made but not written to yet.
NOT_YET = "no such table"
# What it says where its journal must be put right.
RECOVERY = "readonly database"


class LedgerReader:
    """The trials of one search as the ledger has them now."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.reference: list[float] | None = None
        self.networks = Networks()
        self.environment: dict[str, str] = {}
        self._entries: dict[int, Entry] = {}
        self._storage: BaseStorage | None = None
        self._seen: tuple[tuple[int, ...], ...] | None = None
        self._lock = threading.Lock()

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def read(self) -> bool:
        """Look again; True when something has changed. Nothing is there where the driver has not
        come to write, or where the ledger was deleted."""
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
                with undisturbed():
                    changed = self._read_recovered()
            except (SQLAlchemyError, StorageInternalError, ImportError) as error:
                reason = _reason(error)
                if NOT_YET in reason:
                    return gone
                raise UserError(f"the ledger of '{self.name}' cannot be read: {reason}") from None
            self._seen = stamp
            return changed or gone

    def _read_recovered(self) -> bool:
        """What a writer left half written when it was killed, SQLite must put right first, which
        it does for those who may write."""
        try:
            return self._read()
        except (SQLAlchemyError, StorageInternalError) as error:
            if RECOVERY not in _reason(error):
                raise
        self._storage = open_read_only(self.url, recover=True)
        return self._read()

    def _read(self) -> bool:
        storage = self._open()
        try:
            study = storage.get_study_id_from_name(self.name)
        except KeyError:
            return False
        changed = False
        for trial in storage.get_all_trials(study, deepcopy=False):
            known = self._entries.get(trial.number)
            if known is None or (known.ended is None and trial.state.is_finished()):
                self._entries[trial.number] = _entry(trial, self.name)
                changed = True
        if changed or self.reference is None:
            attrs: dict[str, Any] = storage.get_study_user_attrs(study)
            self.reference = attrs.get("reference")
            self.networks = Networks.from_json(attrs.get("networks"))
            self.environment = attrs.get("environment", {})
        return changed

    def _open(self) -> BaseStorage:
        if self._storage is None:
            self._storage = open_read_only(self.url)
        return self._storage

    def _stamp(self) -> tuple[tuple[int, ...], ...] | None:
        """What changes when a SQLite ledger is written to; () where there is no file, None where
        only the database can tell."""
        path = file_of(self.url)
        if path is None:
            return None
        return tuple(
            (found.st_ino, found.st_size, found.st_mtime_ns)
            for suffix in ("", "-wal")
            if (found := _stat(f"{path}{suffix}")) is not None
        )

    def _other_file(self, stamp: tuple[tuple[int, ...], ...] | None) -> bool:
        """The ledger was deleted, and perhaps begun anew."""
        return bool(self._seen and (not stamp or stamp[0][0] != self._seen[0][0]))

    def _forget(self) -> None:
        self._entries, self.reference, self.networks = {}, None, Networks()
        self._storage = self._seen = None


@contextmanager
def undisturbed() -> Iterator[None]:
    """No collection of garbage while much is made of which all stays: it takes half the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def file_of(url: str) -> Path | None:
    """The file of a SQLite ledger."""
    return Path(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else None


def open_read_only(url: str, recover: bool = False) -> BaseStorage:
    """A store that reads every finished trial once."""
    from search.storage import LedgerStorage

    address = url if recover else read_only(url)
    storage = LedgerStorage(address, skip_compatibility_check=True, skip_table_creation=True)
    return optuna.storages.get_storage(storage)


def read_only(url: str) -> str:
    """The same ledger, opened so that nothing can be written; of SQLite only, others have users
    and rights for that."""
    path = file_of(url)
    if path is None:
        return url
    # A ledger in a folder that cannot be written to has no writer either: no journal to look at.
    mode = "mode=ro" if os.access(path.parent, os.W_OK) else "immutable=1"
    name = quote(quote(str(path)))  # SQLAlchemy takes the quotes off once, SQLite once more
    return f"{SQLITE}file:{name}?{mode}&uri=true"


def _entry(trial: FrozenTrial, name: str) -> Entry:
    try:
        return entry_of(trial)
    except (KeyError, ValidationError):
        raise UserError(
            f"the ledger of '{name}' cannot be read: trial {trial.number} is of another version"
        ) from None


def _reason(error: Exception) -> str:
    told = error.__cause__ if isinstance(error, StorageInternalError) else error
    return (str(told).splitlines() or [type(told).__name__])[0]


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
