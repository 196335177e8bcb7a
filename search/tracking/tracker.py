"""The tracker: the only MLflow writer of a running search.

Its thread sends changes in batches, so that the driver never waits for MLflow. What a server that
is away did not take is sent again later. Every start compares MLflow with the ledger, so that they
agree again after any crash: the ledger is the truth, and mirror.py writes a copy of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.pictures import NO_PICTURES, Pictures
from bitfront.search.session.interrupts import held_back
from bitfront.search.tracking.mirror import STATUS, FrontMetrics, Mirror
from bitfront.search.tracking.store import tracking_uri, trouble

FLUSH_SECONDS = 1.0
LONGEST_BACKOFF = 10.0
# How long the end of a search waits for a store that takes nothing. For a server, which may be
# restarting, `tracking.patience` counts instead.
CLOSE_SECONDS = 20.0
RETRY_SECONDS = 2.0
# Between two updates of the description of a running search.
NOTE_SECONDS = 20.0


@dataclass
class _Outbox:
    """Changes that have not been delivered yet."""

    trials: dict[str, Entry] = field(default_factory=dict)
    curves: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    parent: list[tuple[str, float, int, int]] = field(default_factory=list)
    front: FrontMetrics | None = None


class Tracker:
    """Takes changes from the driver without waiting, and writes them to MLflow when it can."""

    def __init__(
        self,
        config: SearchConfig,
        identity: str,
        home: Path,
        pictures: Pictures = NO_PICTURES,
    ) -> None:
        self.config = config
        self._drawn_by = pictures.of_trial
        self.identity = identity
        self.home = home
        self.uri = tracking_uri(config, home)
        self.last_error: str | None = None
        self._mirror: Mirror | None = None
        self._connected = False
        self._entries: dict[str, Entry] = {}
        self._outbox = _Outbox()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._started = threading.Event()
        self._closing = False
        self._abandoned = False
        self._progress = 0.0
        self._patience = CLOSE_SECONDS / 2
        self._described = 0.0
        self._pictures: dict[str, dict[str, Any]] = {}
        self._front: set[str] = set()
        self._thread: threading.Thread | None = None

    # Called by the driver. Only `close` touches MLflow or waits.

    def start(self, entries: Iterable[Entry]) -> None:
        """Start delivering; `entries` are all trials the ledger has so far."""
        self._entries = {entry.id: entry for entry in entries}
        with self._lock:
            self._outbox.trials.update(self._entries)
        with held_back():  # a thread whose start is interrupted cannot be joined
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()

    def trial(self, entry: Entry) -> None:
        """Queue a trial that started or ended."""
        with self._lock:
            self._entries[entry.id] = entry
            self._outbox.trials[entry.id] = entry

    def epoch(self, entry: Entry, metrics: dict[str, float]) -> None:
        with self._lock:
            self._outbox.trials.setdefault(entry.id, entry)
            self._started.set()
            self._outbox.curves.setdefault(entry.id, []).append(metrics)

    def picture(self, entry: Entry, picture: dict[str, Any]) -> None:
        """Keep the data of an ended trial's pictures. Those of the front are drawn at the end of
        the search: drawing takes CPU time that a running search needs."""
        with self._lock:
            self._pictures = {k: v for k, v in self._pictures.items() if k in self._front}
            self._pictures[entry.id] = picture

    @property
    def behind(self) -> int:
        """How many trials have ended and are not in MLflow yet."""
        with self._lock:
            ended = [e.id for e in self._entries.values() if e.state in STATUS]
        mirror = self._mirror
        return sum(mirror is None or not mirror.has_ended(key) for key in ended)

    def search_metric(self, name: str, value: float, step: int) -> None:
        with self._lock:
            self._outbox.parent.append((name, value, int(time.time() * 1000), step))

    def front(self, members: FrontMetrics) -> None:
        """Set the front: the trials that stand for its points, with the metrics of those points."""
        with self._lock:
            self._outbox.front, self._front = members, set(members)

    @property
    def started(self) -> bool:
        """Whether it has begun to write to MLflow: it waits for the first epoch of a turn."""
        return self._started.is_set()

    def abandon(self) -> None:
        """End without writing anything: the search never began, or nothing has changed."""
        self._abandoned = True
        self._started.set()

    def close(
        self,
        state: str,
        artifacts: dict[str, str | Path],
        summary: str,
        waiting: Callable[[float], None] = lambda _seconds: None,
    ) -> str | None:
        """Deliver the rest and end the parent run. Returns what went wrong, if anything did. Where
        the store takes nothing, `waiting` is called once with the seconds it is waited for."""
        self._patience = self._patience_for(state)
        self._closing = True
        self._started.set()
        self._wake.set()
        self._progress = time.monotonic()
        try:
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.2)
                waiting = self._tell(waiting)
                if self._idle > self._patience + CLOSE_SECONDS / 2:
                    return self.last_error or "MLflow did not answer in time"
            if self._pending():
                return self.last_error
            while not self._finished(state, artifacts, summary):
                waiting = self._tell(waiting)
                if self._idle > self._patience:
                    return self.last_error
                time.sleep(RETRY_SECONDS)
        except KeyboardInterrupt:
            return self.last_error or "not waited for"
        return None

    def _patience_for(self, state: str) -> float:
        if state != "complete" or not self.uri.startswith("http"):
            return CLOSE_SECONDS / 2
        return self.config.tracking.patience

    @property
    def _idle(self) -> float:
        return time.monotonic() - self._progress

    def _tell(self, waiting: Callable[[float], None]) -> Callable[[float], None]:
        """Call `waiting` the first time the store takes nothing; returns what to call next time."""
        if self.last_error is None or self._idle < CLOSE_SECONDS / 4:
            return waiting
        waiting(self._patience)
        return lambda _seconds: None

    def _finished(self, state: str, artifacts: dict[str, str | Path], summary: str) -> bool:
        """Write what is written only at the end; returns whether all of it was. May be repeated."""
        try:
            mirror = self.mirror
            mirror.log_pictures(self._pictures, self._front, self._entries, self._drawn_by)
            mirror.deliver_extras(self._entries.values())
            mirror.finish(state, artifacts, summary)
        except Exception as error:
            self.last_error = trouble(error)
            return False
        return True

    # The thread.

    def _work(self) -> None:
        # Importing MLflow takes seconds of CPU that the workers need to start up.
        self._started.wait()
        if self._abandoned:
            return
        delay = FLUSH_SECONDS
        while True:
            try:
                self._flush()
                delay = FLUSH_SECONDS
            except Exception as error:
                self.last_error = trouble(error)
                delay = min(LONGEST_BACKOFF, 2 * delay)
                # The failed request may have arrived: the next attempt reads again what MLflow has,
                # and makes no run twice.
                self._connected = False
            if self._closing:
                if not self._pending() or self._idle > self._patience:
                    return
                delay = min(delay, RETRY_SECONDS)
            self._wake.wait(delay)
            if self._closing:
                self._wake.clear()

    def _pending(self) -> bool:
        with self._lock:
            box = self._outbox
            return bool(box.trials or box.curves or box.parent or box.front is not None)

    def _flush(self) -> None:
        if not self._connected:
            self._connect()
        with self._lock:
            box, self._outbox = self._outbox, _Outbox()
        try:
            refused = self._deliver_all(box)
            if box.front is not None:
                self.mirror.tag_front(box.front)
                self._describe(box.front, box.parent)
                box.front = None
            if box.parent:
                self.mirror.log(self.mirror.parent_id, metrics=box.parent)
                box.parent = []
            if refused is not None:
                raise refused
        except Exception:
            self._put_back(box)
            raise

    def _deliver_all(self, box: _Outbox) -> Exception | None:
        """Deliver every trial, also when MLflow refuses one of them: that one stays in the box, and
        the error is returned."""
        refused: Exception | None = None
        for trial_id in list(box.trials):
            try:
                self.mirror.deliver(box.trials[trial_id], box.curves.get(trial_id, []))
            except Exception as error:
                refused = error
                continue
            self._progress = time.monotonic()
            box.trials.pop(trial_id)
            box.curves.pop(trial_id, None)
        return refused

    def _put_back(self, box: _Outbox) -> None:
        with self._lock:
            new = self._outbox
            new.trials = {**box.trials, **new.trials}
            for trial_id, rows in box.curves.items():
                new.curves[trial_id] = rows + new.curves.get(trial_id, [])
            new.parent = box.parent + new.parent
            new.front = box.front if new.front is None else new.front

    def _describe(self, front: FrontMetrics, parent: list[tuple[str, float, int, int]]) -> None:
        """Update the description of the parent run, every `NOTE_SECONDS` at most."""
        if time.monotonic() - self._described < NOTE_SECONDS:
            return
        self._described = time.monotonic()
        with self._lock:
            entries = list(self._entries.values())
        shares = (value for name, value, *_ in reversed(parent) if name == "hypervolume_share")
        share = next(shares, None)
        self.mirror.describe(entries, set(front), share)

    @property
    def mirror(self) -> Mirror:
        """The connection to MLflow, once there was one."""
        if self._mirror is None:
            raise ConnectionError("MLflow was never reached")
        return self._mirror

    def _connect(self) -> None:
        first = self._mirror is None
        self._mirror = Mirror(self.config, self.identity, self.home, self.uri)
        with self._lock:
            for entry in self._entries.values():
                if not self._mirror.has_ended(entry.id):
                    self._outbox.trials.setdefault(entry.id, entry)
        self._connected = True
        if first:  # a later connection follows a failure and is no progress
            self._progress = time.monotonic()
