"""What goes wrong with the workers of a running search: those that died, and those that say
nothing for too long and are ended. Ray Tune calls it; the session is told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.tune import Callback

from bitfront.search.cluster import head
from bitfront.search.ledger.writing import LedgerLostError

if TYPE_CHECKING:
    from bitfront.search.cluster.tuner import LedgerSearcher

# A driver that was held up this long (its database was away) has not heard its trials either.
HELD_UP_SECONDS = 5.0


@contextlib.contextmanager
def ending_all_when_lost() -> Iterator[None]:
    """A ledger that stays away ends the search. Tune would take any other exception for the
    trial's own, and train it again."""
    try:
        yield
    except LedgerLostError as error:
        raise KeyboardInterrupt from error


def last_words(trial: Any) -> str:
    """What Ray knows of the end of a trial's worker. It keeps a pickle too, which is not read:
    somebody else may have written it."""
    try:
        text = Path(trial.error_file).read_text(errors="replace")
    except (OSError, TypeError):
        return "no word of why"
    return text.rpartition("Failure # ")[2].partition("\n")[2].strip()[:2000]


class Watcher(Callback):
    """Hears what the searcher does not."""

    def __init__(self, searcher: LedgerSearcher, report_within: float | None) -> None:
        self.searcher = searcher
        self.limit = report_within
        self._heard: dict[str, tuple[Any, float]] = {}
        self._hung: set[str] = set()
        self._last_step = time.monotonic()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._heard[trial.trial_id] = (trial, time.monotonic())

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._heard[trial.trial_id] = (trial, time.monotonic())

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._heard.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._heard.pop(trial.trial_id, None)
        head.check()
        entry_id = self.searcher.trials.pop(trial.trial_id, None)
        if entry_id is None:
            return
        if self.searcher.session.comes_back(entry_id):
            return
        reason, message = "lost worker", last_words(trial)
        if "OutOfMemory" in message or "low on memory" in message:
            reason = "oom"
        elif trial.trial_id in self._hung:
            reason, message = "hung", f"no epoch within {self.limit:g} s (resources.report_within)"
        with ending_all_when_lost():
            self.searcher.session.fail(entry_id, reason, message)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """End the workers that have not reported for too long; Ray then sees them die, and the
        trial has its other lives."""
        now = time.monotonic()
        held_up, self._last_step = now - self._last_step, now
        if self.limit is None:
            return
        for trial_id, (trial, heard) in list(self._heard.items()):
            if held_up > HELD_UP_SECONDS:
                heard += held_up
                self._heard[trial_id] = (trial, heard)
            actor = trial.temporary_state.ray_actor
            if now - heard > self.limit and actor is not None:
                self._hung.add(trial_id)
                self._heard.pop(trial_id)
                ray.kill(actor)
