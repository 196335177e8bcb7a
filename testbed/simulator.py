"""Simulated searches: the ledger, sampler, searcher and scheduler of a real search, with workers
that look up results in a table instead of training. Hours of training take seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bitfront.search.cluster.searcher import LedgerSearcher
from bitfront.search.cluster.tuner import make_scheduler
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.pausing import Pausing
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.samplers.problem import Elsewhere
from bitfront.search.session.early_stopping import EarlyStopping
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import MemoryFolder, Replayed, play
from bitfront.spaces.space import Space

Answer = Callable[[Entry], Sequence[float | str]]
"""(trial) -> its validation accuracy after every epoch; text is the reason of a failure, after
which there are no more."""


@dataclass
class Places:
    """Room for `workers` trials at a time, whatever resources they need."""

    workers: int

    def free(self, running: Iterable[float]) -> bool:
        return sum(1 for _ in running) < self.workers


class RayDesk:
    """Calls the searcher and the scheduler as Ray Tune does, without Ray."""

    def __init__(self, session: Session, workers: int) -> None:
        self.searcher = LedgerSearcher(session, Places(workers))  # type: ignore[arg-type]
        self.scheduler = make_scheduler(session)

    def take(self, worker: str) -> str | None:
        given = self.searcher.suggest(worker)
        return given["trial"] if isinstance(given, dict) else None

    def report(self, worker: str, trial_id: str, result: dict[str, Any]) -> bool:
        tuner: Any = None
        trial: Any = SimpleNamespace(trial_id=worker, config={"trial": trial_id})
        stop = self.scheduler.on_trial_result(tuner, trial, result) == self.scheduler.STOP
        if not result["done"] and not stop:
            self.searcher.on_trial_result(worker, result)
            return False
        self.searcher.on_trial_complete(worker, result)
        return True


def simulate(
    config: SearchConfig,
    space: Space,
    answer: Answer,
    workers: int,
    stopping: EarlyStopping | None = None,
    ended: Callable[[Session], None] = lambda _session: None,
    pausing: Callable[[SearchConfig, Ledger], Pausing] | None = None,
    first: Sequence[dict[str, Any]] = (),
    elsewhere: Sequence[Elsewhere] = (),
) -> Replayed:
    """Run the search to the end of its budget on `workers` simulated workers and return its record;
    `stopping` and `pausing` replace the rules of the configuration, `ended` is called after every
    trial; `first` and `elsewhere` are what a search begins with."""

    def rows(entry: Entry) -> list[dict[str, Any]]:
        return [
            {"epoch": i, "failure": a, "message": ""}
            if isinstance(a, str)
            else {"epoch": i, "val_accuracy": a}
            for i, a in enumerate(answer(entry), 1)
        ]

    with tempfile.TemporaryDirectory() as folder:
        session = Session(config, space, MemoryFolder(Path(folder)), tracker=None, first=first)
        session.ledger.learn_from(elsewhere)
        session.stopping = stopping or session.stopping
        if pausing is not None:
            session.pausing = pausing(config, session.ledger)
            session.ledger.promoted = session.pausing.next
        return play(session, rows, workers, RayDesk(session, workers), ended)
