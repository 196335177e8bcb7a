"""The SQLite file of a new MLflow store."""

from __future__ import annotations

import atexit
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bitfront.search.urls import sqlite_for_mlflow

PART = ".part"
# An unfinished file that was not touched for so long belongs to a process that was killed.
FORGOTTEN_SECONDS = 600.0
# Unfinished files of this process. It may end while the thread that makes one is at work.
_unfinished: set[Path] = set()


@atexit.register
def _discard_unfinished() -> None:
    for part in list(_unfinished):
        _discard(part)


def _discard(part: Path) -> None:
    """Delete an unfinished file, and SQLite's journals beside it."""
    for left in part.parent.glob(f"{part.name}*"):
        left.unlink(missing_ok=True)


def _discard_forgotten(path: Path) -> None:
    """Delete what killed processes have left of attempts to make the store."""
    for part in path.parent.glob(f"{path.name}.*{PART}"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > FORGOTTEN_SECONDS:
                _discard(part)


def make_database(client: Any, path: Path) -> None:
    """Make a new store with MLflow's client, whole or not at all: MLflow creates its tables in many
    steps, and a driver killed between two of them would leave a file that nothing can open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another name at every attempt: a disk that is full leaves some of the tables, and MLflow
    # remembers by its name that it has made them.
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")
    _discard_forgotten(path)
    _unfinished.add(part)
    try:
        with _unsynchronized(part.name):
            client(sqlite_for_mlflow(part)).search_experiments(max_results=1)
        with part.open("rb") as made:
            os.fsync(made.fileno())
        if not path.exists():
            part.rename(path)
    finally:
        _discard(part)
        _unfinished.discard(part)


@contextmanager
def _unsynchronized(name: str) -> Iterator[None]:
    """Connections to a SQLite file of this name do not wait for the disk: hundreds of statements
    make a store, which takes seconds where each is waited for."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def connected(connection: Any, _record: Any) -> None:
        # Other threads open other databases meanwhile.
        if type(connection).__module__ != "sqlite3":
            return
        if any(Path(row[2]).name == name for row in connection.execute("PRAGMA database_list")):
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = MEMORY")

    event.listen(Engine, "connect", connected)
    try:
        yield
    finally:
        event.remove(Engine, "connect", connected)
