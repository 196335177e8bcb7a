"""The searcher that Ray Tune asks for trials: it gets them from the session and reports their
results to it. Trials that end in an error are reported by watcher.py."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ray.tune.search import Searcher

from bitfront.search.cluster.connection import free, look, workers
from bitfront.search.cluster.resources import Cluster, has_place, needs
from bitfront.search.homes import searches
from bitfront.search.ledger.writing import LedgerLostError
from bitfront.search.session.interrupts import obey
from bitfront.search.session.progress import WORKERS_START
from bitfront.search.session.session import Session
from bitfront.search.submission import FOR_PLACE

# Seconds between two looks at the cluster, whose nodes come and go.
LOOK_SECONDS = 5.0


@contextlib.contextmanager
def ending_all_when_lost() -> Iterator[None]:
    """Turn the loss of the ledger into a KeyboardInterrupt, which ends the search. Tune would take
    any other exception for the trial's own and train the trial again."""
    try:
        yield
    except LedgerLostError as error:
        raise KeyboardInterrupt from error


class Room:
    """Decides whether there is room for another trial. A trial asked for too early would wait in
    Ray's queue, chosen without the results of trials that end meanwhile."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._seen, self._until = look(), 0.0

    def free(self, running: Iterable[float]) -> bool:
        """Whether another trial fits. `running` has the number of GPUs of every running trial:
        where trials share a GPU, one that has a whole GPU counts as several."""
        taken = list(running)
        resources, gpus = self.session.config.resources, self.session.gpus
        if resources.concurrent is not None and len(taken) >= resources.concurrent:
            return False
        if taken and self.session.waits is not None:  # others have all places
            return False
        places = sum(max(1, round(g / gpus)) if gpus else 1 for g in taken)
        return places < self._cluster().room(needs(resources, gpus))

    def _cluster(self) -> Cluster:
        if time.monotonic() >= self._until:
            self._seen, self._until = look(), time.monotonic() + LOOK_SECONDS
        return self._seen


def waits_for_place(session: Session) -> str | None:
    """What to say while the trials of others have all places where a trial of this session would
    fit; None where it has one, or one is free."""
    need = needs(session.config.resources, session.gpus)
    places = look().slots(need)
    if not places or has_place(free(), need) or workers()[0]:
        return None
    others = [f"'{f.name}'" for f in searches(None) if f.running and f.path != session.folder.path]
    who = f"by {', '.join(others)}" if others else "by other jobs of this Ray"
    count = f"all {places} are" if places > 1 else "the only one is"
    limit = "how many trials a search may run at once is its resources.concurrent"
    return f"{FOR_PLACE}, {count} taken {who} ({limit})"


def starting() -> str:
    """What the workers of this driver do before the first of them reports."""
    there, ready = workers()
    if not there:
        return WORKERS_START
    if ready < there:
        return f"{WORKERS_START}, {ready} of {there} are ready (each imports torch first)"
    return f"{there} worker{'s train their' if there > 1 else ' trains its'} first epoch"


class LedgerSearcher(Searcher):
    """Gives Ray the trials the session asks for and reports their results to the session."""

    def __init__(self, session: Session, room: Room) -> None:
        quality = session.config.quality
        super().__init__(metric=quality.name, mode="max" if quality.maximize else "min")
        self.session = session
        self.room = room
        self.trials: dict[str, str] = {}
        self._gpus: dict[str, float] = {}
        self._dry_at: int | None = None

    def suggest(self, trial_id: str) -> Any:
        if not self.room.free(self._gpus[t] for t in self.trials):
            return None
        obey()
        entry = None
        told = self.session.ledger.told
        if told != self._dry_at or self.session.ledger.interrupted():
            with ending_all_when_lost():
                entry = self.session.ask()
        if entry is None:
            # There may be a trial later: a running one may be interrupted and come back, or its
            # point may get another seed once it has ended. The session is asked again when a trial
            # has ended; the search ends when no trial runs.
            self._dry_at = told
            return None if self.trials else Searcher.FINISHED
        self.trials[trial_id] = entry.id
        self._gpus[trial_id] = self.session.gpus
        return self.session.trial_config(entry)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        with ending_all_when_lost():
            self.session.report(self.trials[trial_id], result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        # Errors are reported by `Watcher.on_trial_error`, which knows the reason.
        if not error and result is not None and trial_id in self.trials:
            with ending_all_when_lost():
                self.session.finish(self.trials.pop(trial_id), result)

    def __getstate__(self) -> dict[str, Any]:
        """An empty state: the Tuner pickles its searcher for a restore that is never used."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the ledger is on disk already."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the ledger is on disk already."""
