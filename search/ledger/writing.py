"""Repeating a write to the ledger's database until it succeeds, where the database is away for a
while. What is written is decided in `ledger`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from bitfront.search.durations import duration
from bitfront.search.ledger.reader import hint_for
from bitfront.search.session.interrupts import obey
from bitfront.trainables.errors import UserError, first_line

T = TypeVar("T")
Say = Callable[[str], None]

# How long a database that is away is waited for, and the longest pause between two attempts.
PATIENCE_SECONDS = 600.0
LONGEST_PAUSE = 5.0
# Seconds between two messages about a database that is away.
TELLING_SECONDS = 30.0
# How often a pause looks whether the user asked the search to end.
LOOK_SECONDS = 0.2
# Part of SQLite's message when a disk is full.
NO_ROOM = "disk is full"


class LedgerLostError(UserError):
    """The ledger cannot be written any more: its database stayed away, or its file was deleted."""


def persistently(
    write: Callable[[], T],
    patience: float | None = None,
    say: Say = lambda _text: None,
    place: Path | None = None,
) -> T:
    """The result of `write`, repeated while the database is away, restarts or has no room, for at
    most `patience` seconds. `say` gets a message at once and every TELLING_SECONDS. `write` may run
    again although an attempt succeeded whose reply was lost. `place` is the file of a SQLite
    ledger."""
    deadline = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
    pause, said = 0.1, -math.inf
    while True:
        try:
            return write()
        except (StorageInternalError, SQLAlchemyError) as error:
            cause = error.__cause__ if isinstance(error, StorageInternalError) else error
            passing = isinstance(cause, (InterfaceError, OperationalError))
            reason = first_line(cause or error)
            now = time.monotonic()
            if not passing or now + pause > deadline:
                raise LedgerLostError(
                    f"the ledger cannot be written: {_trouble(reason, place)}",
                    hint_for(reason)
                    or "no trial that has ended is lost; when it is back: bitfront resume NAME",
                ) from None
            if now - said >= TELLING_SECONDS:
                said = now
                say(
                    f"the ledger cannot be written now, {_trouble(reason, place)}: waiting, up to "
                    f"{duration(deadline - now)}; ctrl-C ends, no trial that has ended is lost"
                )
        _sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause)


def _trouble(reason: str, place: Path | None) -> str:
    """The reason in words: a full disk is named by its folder."""
    if place is not None and NO_ROOM in reason:
        return f"the disk of {place.parent} is full"
    return reason


def _sleep(seconds: float) -> None:
    """Sleep, and raise KeyboardInterrupt within LOOK_SECONDS of a ctrl-C: Tune replaces the handler
    by one that only makes a note of it."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        obey()
        time.sleep(min(left, LOOK_SECONDS))
    obey()
