"""Searches answered from a table: the ledger, sampler, searcher and scheduler of a real search,
with workers that look results up instead of training. Hours of training replay in seconds."""

from __future__ import annotations

import heapq
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from search.config import SearchConfig
from search.driver import Session
from search.entry import Entry
from search.home import SearchFolder
from search.stopping import EarlyStopping
from search.tuner import LedgerSearcher, Searcher, make_scheduler
from spaces.space import Space

# How far the speed of one trial is from that of another, as the sigma of a lognormal.
SPEED_SPREAD = 0.2

Answer = Callable[[Entry], list[float]]
"""Validation accuracy after every epoch of a trial."""


class MemoryFolder(SearchFolder):
    """A search that leaves nothing behind."""

    @property
    def ledger_url(self) -> str:
        return "memory:"


@dataclass
class Places:
    """Room for so many trials at once, whatever they take."""

    workers: int

    def free(self, running: Iterable[float]) -> bool:
        return sum(1 for _ in running) < self.workers


@dataclass
class Replayed:
    """What a simulated search did, in the order in which it happened."""

    session: Session
    ended: list[Entry] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    """trained epochs of all trials together, when each of `ended` ended"""
    ask_seconds: list[float] = field(default_factory=list)
    time: float = 0.0
    """simulated: an epoch takes about 1"""


def simulate(
    config: SearchConfig,
    space: Space,
    answer: Answer,
    workers: int,
    stopping: EarlyStopping | None = None,
) -> Replayed:
    """Run the search to the end of its budget on this many simulated workers; `stopping` is
    another rule for early stopping than the one of the configuration."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session(config, space, MemoryFolder(Path(folder)), tracker=None, quiet=True)
        session.stopping = stopping or session.stopping
        searcher = LedgerSearcher(session, Places(workers))
        scheduler = make_scheduler(session)
        replayed = Replayed(session)
        rng = random.Random(config.search.seed)
        numbers = itertools.count()
        events: list[tuple[float, int, Any, int]] = []
        clock, trained, idle, finished = 0.0, 0, workers, False
        while True:
            while idle and not finished:
                trial_id = f"t{next(numbers)}"
                began = time.perf_counter()
                given = searcher.suggest(trial_id)
                if given is None:
                    break
                if given == Searcher.FINISHED:
                    finished = True
                else:
                    replayed.ask_seconds.append(time.perf_counter() - began)
                    entry = session.ledger.entries[given["trial"]]
                    pace = rng.lognormvariate(0, SPEED_SPREAD)
                    trial = SimpleNamespace(
                        trial_id=trial_id, config=given, curve=answer(entry), pace=pace
                    )
                    idle -= 1
                    heapq.heappush(events, (clock + pace, next(numbers), trial, 1))
            if not events:
                break
            clock, _, trial, epoch = heapq.heappop(events)
            trained += 1
            result = _result(trial.curve, epoch)
            stop = scheduler.on_trial_result(None, trial, result) == scheduler.STOP
            if not result["done"] and not stop:
                searcher.on_trial_result(trial.trial_id, result)
                heapq.heappush(events, (clock + trial.pace, next(numbers), trial, epoch + 1))
                continue
            searcher.on_trial_complete(trial.trial_id, result)
            idle += 1
            replayed.ended.append(session.ledger.entries[trial.config["trial"]])
            replayed.epochs.append(trained)
        replayed.time = clock
        return replayed


def _result(curve: list[float], epoch: int) -> dict[str, Any]:
    rows = [{"epoch": i + 1, "val_accuracy": a} for i, a in enumerate(curve[:epoch])]
    return {**rows[-1], "history": rows, "done": epoch == len(curve)}
