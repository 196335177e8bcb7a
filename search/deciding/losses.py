"""Whether a trial whose worker died is continued."""

from __future__ import annotations


class Losses:
    """Counts the deaths of workers by trial. `retries` limits those without a new epoch in between,
    so that a long trial survives any number of preempted machines."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._known: dict[str, tuple[int, int]] = {}

    def again(self, trial_id: str, reached: int) -> bool:
        """Whether a trial continues whose worker died after this epoch."""
        furthest, losses = self._known.get(trial_id, (0, 0))
        losses = losses + 1 if reached <= furthest else 1
        self._known[trial_id] = (max(reached, furthest), losses)
        return losses <= self._retries

    def forget(self, trial_id: str) -> None:
        """The trial has ended."""
        self._known.pop(trial_id, None)
