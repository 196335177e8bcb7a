"""A search with simulated workers: a real session whose trials get their results from a function
instead of training. Hours of training take seconds, without Ray."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.states import TrialState
from bitfront.search.session.session import Session

# The sigma of the lognormal distribution of the speeds of trials.
SPEED_SPREAD = 0.2

Answer = Callable[[Entry], list[dict[str, Any]]]
"""The results of a trial: a row per reported epoch; the last one may be a failure."""


class MemoryFolder(SearchFolder):
    """A folder whose ledger is in memory."""

    @property
    def ledger_url(self) -> str:
        return "memory:"


class Desk(Protocol):
    """Where simulated workers get their trials and report results."""

    def take(self, worker: str) -> str | None:
        """The id of the next trial; None while there is none."""

    def report(self, worker: str, trial_id: str, result: dict[str, Any]) -> bool:
        """Take a result, and return whether the trial is over: complete, failed or stopped."""


@dataclass
class SessionDesk:
    """Asks the session directly, as Ray's searcher and scheduler do."""

    session: Session

    def take(self, worker: str) -> str | None:
        entry = self.session.ask()
        return None if entry is None else entry.id

    def report(self, worker: str, trial_id: str, result: dict[str, Any]) -> bool:
        over = result["done"] or self.session.gives_up(trial_id, result)
        if over:
            self.session.finish(trial_id, result)
        else:
            self.session.report(trial_id, result)
        return bool(over)


@dataclass
class Replayed:
    """What a simulated search did, in order."""

    session: Session
    ended: list[Entry] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    """epochs trained by all trials together up to the end of each of `ended`"""
    ask_seconds: list[float] = field(default_factory=list)
    time: float = 0.0
    """simulated: an epoch takes about 1"""


@dataclass
class Work:
    """A trial on a simulated worker."""

    worker: str
    trial_id: str
    rows: list[dict[str, Any]]
    pace: float
    reported: int = 0

    def next_epochs(self) -> int:
        """How many epochs it trains until it reports again."""
        before = self.rows[self.reported - 1]["epoch"] if self.reported else 0
        return int(self.rows[self.reported]["epoch"] - before)

    def report(self) -> dict[str, Any]:
        row = self.rows[self.reported]
        self.reported += 1
        done = self.reported == len(self.rows)
        if not done or "failure" in row:
            return {**row, "done": done}
        return {**row, "history": self.rows, "done": True}


def play(
    session: Session,
    answer: Answer,
    workers: int,
    desk: Desk | None = None,
    ended: Callable[[Session], None] = lambda _session: None,
) -> Replayed:
    """Run the session to the end of its budget on this many simulated workers; `ended` is called
    after every trial."""
    desk = desk or SessionDesk(session)
    replayed = Replayed(session)
    rng = random.Random(session.config.search.seed)
    numbers = itertools.count()
    events: list[tuple[float, int, Work]] = []
    clock, trained, idle, asking = 0.0, 0, workers, True
    while True:
        while idle and asking:
            worker = f"t{next(numbers)}"
            began = time.perf_counter()
            trial_id = desk.take(worker)
            # None now: there may be a trial again when another one has ended.
            asking = trial_id is not None
            if trial_id is None:
                break
            replayed.ask_seconds.append(time.perf_counter() - began)
            pace = rng.lognormvariate(0, SPEED_SPREAD)
            entry = session.ledger.entries[trial_id]
            work = Work(worker, trial_id, answer(entry), pace)
            if entry.history:  # it rested, and goes on from there
                reached = entry.history[-1]["epoch"]
                work.reported = sum(row["epoch"] <= reached for row in work.rows)
            idle -= 1
            heapq.heappush(events, (clock + pace * work.next_epochs(), next(numbers), work))
        if not events:
            break
        clock, _, work = heapq.heappop(events)
        trained += work.next_epochs()
        entry = session.ledger.entries[work.trial_id]
        if not desk.report(work.worker, work.trial_id, work.report()):
            then = clock + work.pace * work.next_epochs()
            heapq.heappush(events, (then, next(numbers), work))
            continue
        idle, asking = idle + 1, True
        if entry.state == TrialState.PAUSED:
            continue
        replayed.ended.append(entry)
        replayed.epochs.append(trained)
        ended(session)
    replayed.time = clock
    return replayed
