"""Writes what a turn is doing for those who watch it (`turn`), beside what the terminal shows of
it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from bitfront.search.ledger.entry import Entry
from bitfront.search.live.turn import FILE, MOST_TRIALS, Running, Turn, write_turn
from bitfront.search.session.progress import Progress
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import discard

if TYPE_CHECKING:
    from bitfront.search.session.session import Session

# Seconds between two writes, and how many times longer than a write it waits after one.
WRITE_SECONDS, SHARE = 1.0, 20.0


def telling(shown: Callable[[Session], Progress]) -> Callable[[Session], Progress]:
    """What makes the progress of a session, which also writes its turn."""
    return lambda session: Teller(session, shown(session))


class Teller:
    """Passes all on to the progress that people see, and writes the turn at most once a second."""

    def __init__(self, session: Session, shown: Progress) -> None:
        self.session = session
        self.shown = shown
        self._where: dict[str, str] = {}
        self._nodes: tuple[Sequence[str], Sequence[str]] = ((), ())
        self._first: tuple[float, float] | None = None
        self._next = 0.0
        self._stale = False
        discard(session.folder.path / FILE)  # of a driver that was killed

    def wait(self, text: str) -> None:
        self.shown.wait(text)

    def say(self, text: str) -> None:
        self.shown.say(text)

    def expect(self, trial_seconds: float | None, slots: int) -> None:
        self.shown.expect(trial_seconds, slots)

    def eta(self) -> float | None:
        return self.shown.eta()

    def start(self) -> None:
        self.shown.start()
        self._stale = True
        self.look()

    def changed(
        self, ended: Entry | None = None, reported: tuple[Entry, dict[str, Any]] | None = None
    ) -> None:
        self.shown.changed(ended, reported)
        if ended is not None:
            self._where.pop(ended.id, None)
        if reported is not None:
            entry, result = reported
            self._where[entry.id] = str(result.get("hostname", ""))
        if self._first is None:
            self._first = time.monotonic(), self.session.done
        self._stale = True
        self.look()

    def nodes(self, there: Sequence[str], lost: Sequence[str]) -> None:
        self.shown.nodes(there, lost)
        self._stale |= self._nodes != (there, lost)
        self._nodes = there, lost

    def look(self) -> None:
        now = time.monotonic()
        if not self._stale or now < self._next:
            return
        self._stale = False
        # A page that knows less is no reason to end a search.
        with contextlib.suppress(OSError, UserError):
            write_turn(self.session.folder.path, self._turn(now))
        self._next = now + max(WRITE_SECONDS, SHARE * (time.monotonic() - now))

    def stop(self) -> None:
        self.shown.stop()
        discard(self.session.folder.path / FILE)

    def _turn(self, now: float) -> Turn:
        s = self.session
        kind, quality = s.config.kind, s.config.quality.name
        quality = kind.quality.name if quality == "val_loss" else quality
        running = {}
        for trial, rows in islice(list(s.curves.items()), MOST_TRIALS):
            curve = [(int(r["epoch"]), r[quality]) for r in rows if "epoch" in r and quality in r]
            epochs = s.ledger.entries[trial].spec.task.epochs
            running[trial] = Running(self._where.get(trial, ""), epochs, curve)
        return Turn(
            time.time(),
            self.eta(),
            self._per_hour(now),
            "" if self._first is not None else s.waits or s.starting,
            *self._nodes,
            running,
        )

    def _per_hour(self, now: float) -> float | None:
        """The rate since the first report, in which running trials count by their epochs."""
        if self._first is None:
            return None
        since, before = self._first
        done = self.session.done - before
        return 3600 * done / (now - since) if done >= 1 and now > since else None
