"""Early stopping that understands a front."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from bitfront.search.session.session import Session


class FrontScheduler(FIFOScheduler):
    """Ends trials that the session's rule gives up. Ray asks here after every epoch."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __getstate__(self) -> dict[str, Any]:
        """The Tuner pickles itself for a restore that is never made from it."""
        return {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        stop = self.session.gives_up(trial.config["trial"], result)
        return TrialScheduler.STOP if stop else TrialScheduler.CONTINUE
