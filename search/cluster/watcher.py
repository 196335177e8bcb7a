"""The watcher of a running search's workers: it reports those that died to the session, and ends
those that have not reported an epoch for too long. Ray Tune calls it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ray
from ray.tune import Callback

from bitfront.search.cluster import head
from bitfront.search.cluster.searcher import LedgerSearcher, ending_all_when_lost

# A driver that was blocked this long, since its database was away, received no reports meanwhile:
# that time does not count against its workers.
HELD_UP_SECONDS = 5.0


def last_words(trial: Any) -> str:
    """Ray's message about the end of a trial's worker. Ray's pickle of the error is not read:
    somebody else may have written it."""
    try:
        text = Path(trial.error_file).read_text(errors="replace")
    except (OSError, TypeError):
        return "no word of why"
    return text.rpartition("Failure # ")[2].partition("\n")[2].strip()[:2000]


class Watcher(Callback):
    """Reports failed trials to the session, with the reason; `report_within` is in seconds."""

    def __init__(self, searcher: LedgerSearcher, report_within: float | None) -> None:
        self.searcher = searcher
        self.limit = report_within
        self._last_report: dict[str, tuple[Any, float]] = {}
        self._hung: set[str] = set()
        self._last_step = time.monotonic()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._last_report[trial.trial_id] = (trial, time.monotonic())

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._last_report[trial.trial_id] = (trial, time.monotonic())

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._last_report.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._last_report.pop(trial.trial_id, None)
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
        """End the workers that have not reported for too long. Ray then reports them as dead, and
        the session may start the trial again."""
        now = time.monotonic()
        held_up, self._last_step = now - self._last_step, now
        if self.limit is None:
            return
        for trial_id, (trial, last) in list(self._last_report.items()):
            reported = last
            if held_up > HELD_UP_SECONDS:
                reported += held_up
                self._last_report[trial_id] = (trial, reported)
            actor = trial.temporary_state.ray_actor
            if now - reported > self.limit and actor is not None:
                self._hung.add(trial_id)
                self._last_report.pop(trial_id)
                ray.kill(actor)
