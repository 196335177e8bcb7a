"""The estimated time that the rest of a search takes: an estimate from before the first trial,
corrected by measurements. It is shown in `bitfront.terminal.progress`."""

from __future__ import annotations

# Ray and the imports of two workers, measured on two cores.
START_SECONDS = 15.0


class Eta:
    """Estimates the remaining time. The estimate made before the first trial has the weight of one
    measured trial per slot; measurements start at the first report, when the workers have warmed
    up."""

    def __init__(self) -> None:
        self.trial_seconds: float | None = None
        self.slots = 1
        self._first: tuple[float, float] | None = None

    def expect(self, trial_seconds: float | None, slots: int) -> None:
        self.trial_seconds, self.slots = trial_seconds, max(1, slots)

    def report(self, now: float, done: float) -> None:
        """Note that `done` trials were trained at the time `now`; a running trial counts as a
        fraction."""
        if self._first is None:
            self._first = now, done

    def seconds(self, now: float, started: float, done: float, budget: float) -> float | None:
        left = budget - done
        if left <= 0:
            return 0.0
        # The estimate counts like so many trials that took as long as expected.
        seen = float(self.slots) if self.trial_seconds is not None else 0.0
        taken = self.trial_seconds or 0.0
        if self._first is None:
            start = max(0.0, START_SECONDS - (now - started))
            return start + left * taken / seen if seen else None
        since, before = self._first
        trials = done - before + seen
        return left * (now - since + taken) / trials if trials > 0 else None
