"""The scheduler that carries out early stopping in Ray Tune. The rule itself is in
`search.session.early_stopping`."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from bitfront.search.session.session import Session


class FrontScheduler(FIFOScheduler):
    """Stops the trials that the session's early-stopping rule gives up, asked after every epoch."""

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.session = session

    def __getstate__(self) -> dict[str, Any]:
        """An empty state: the Tuner pickles its scheduler for a restore that is never used."""
        return {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        stop = self.session.gives_up(trial.config["trial"], result)
        return TrialScheduler.STOP if stop else TrialScheduler.CONTINUE
