"""Notices that the file of a SQLite ledger was deleted or replaced while it is open. SQLite would
go on writing to the deleted file, and everything written would be gone with the process."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.search import submission
from bitfront.search.ledger.writing import LedgerLostError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


class FileGuard:
    """Compares the file at `place` with the one that was there when the ledger was opened."""

    def __init__(self, place: Path | None, storage: BaseStorage, search: str) -> None:
        """`place` is None where the ledger is no file."""
        self.place = place
        self._storage = storage
        self._search = search
        self._opened = identity_of(place)

    def check(self) -> None:
        """Raise LedgerLostError where the file is another one, or none, and save what the open
        connection still reads."""
        if self.place is None or identity_of(self.place) == self._opened:
            return
        kept = self._rescued(self.place)
        what = "replaced" if self.place.exists() else "deleted"
        hint = "what it held could not be kept"
        if kept is not None:
            hint = (
                f"what it held is in {kept.name} beside it; to go on from that, rename it to "
                f"{self.place.name}, then: bitfront resume {self._search}{submission.back()}"
            )
        raise LedgerLostError(f"the ledger {self.place} was {what} while the search ran", hint)

    def _rescued(self, file: Path) -> Path | None:
        """A copy of the ledger made through the open connection; None where that fails."""
        kept = file.with_name(f"{file.stem}-rescued{file.suffix}")
        try:
            kept.unlink(missing_ok=True)
            # A new connection would open the other file.
            with (
                closing(self._storage._backend.engine.raw_connection()) as held,  # type: ignore[attr-defined]
                closing(sqlite3.connect(kept)) as copied,
            ):
                held.driver_connection.backup(copied)
                copied.execute("SELECT COUNT(*) FROM trials")
        except (OSError, sqlite3.Error):
            with suppress(OSError):
                kept.unlink(missing_ok=True)
            return None
        return kept


def identity_of(file: Path | None) -> tuple[int, int] | None:
    """Device and inode of a file; None where there is none."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None
