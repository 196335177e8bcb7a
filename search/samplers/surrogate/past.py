"""The trials of a study as `free-cost` sees them: those that have ended as arrays, and those that
run. Kept between asks: an ask looks only at trials that had not ended at the ask before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import TrialState as OptunaState

from bitfront.search.failing import OF_MACHINES
from bitfront.search.ledger.entry import PAUSE
from bitfront.search.samplers.surrogate.atlas import Atlas, Known
from bitfront.search.samplers.surrogate.learning_curves import Extrapolation
from bitfront.search.samplers.surrogate.model import Floats

# Learning curves that a stopped trial is compared with: those of the newest finished trials.
CURVES = 1000
NO_CURVE = np.zeros((0, 0))


def blames_point(failure: str | None) -> bool:
    """Whether a trial failed for a reason of its point: nan, out of memory, an error. What the
    sampler proposed and the ledger turned down has no reason."""
    return failure is not None and failure not in OF_MACHINES


def rests(trial: Any) -> bool:
    """Whether a trial is paused."""
    pause = trial.user_attrs.get(PAUSE)
    return trial.state == OptunaState.RUNNING and pause is not None and bool(pause["rests"])


class Past:
    """Trials by number, whatever the order in which they ended."""

    def __init__(
        self,
        atlas: Atlas,
        measured: Sequence[str],
        columns: Sequence[int],
        limited: Sequence[str] = (),
    ) -> None:
        """`measured` are the objectives that training measures, `columns` their places among the
        values of a trial; `limited` are the metrics that must be within limits."""
        self._limited = list(limited)
        self._atlas = atlas
        self._measured = list(measured)
        self._columns = list(columns)
        self._read = 0
        self._open: list[int] = []
        self._curves: list[Floats] = []
        self.numbers: NDArray[np.int64] = np.zeros(0, np.int64)
        """the numbers of complete and stopped trials; all other attributes are in this order"""
        self.finished: NDArray[np.bool_] = np.zeros(0, bool)
        """whether a trial is complete"""
        self.values: Floats = np.zeros((0, len(columns)))
        """what was measured, nan of stopped trials"""
        self.limited: Floats = np.zeros((0, len(limited)))
        """the metrics that must be within limits, nan where they were not measured"""
        self.costs: Floats = np.zeros((0, len(atlas.costs)))
        self.points: list[Known] = []
        self.running: list[Known] = []
        """the points of the trials that run"""
        self.failed: dict[int, Known] = {}
        """by number, the points of the trials that failed for a reason of their point"""
        self.paused: set[int] = set()
        """the numbers of paused trials, which look as if stopped where they rest"""

    def update(self, trials: Sequence[Any], asked: int | None = None) -> None:
        """Take over what has changed; `trials` are all of the study, `asked` is the number of the
        one that is being asked for."""
        looked_at = [*self._open, *range(self._read, len(trials))]
        self._read, self._open, self.running = len(trials), [], []
        self._forget(self.paused)
        self.paused, ended = set(), []
        for place in looked_at:
            trial = trials[place]
            if trial.state in (OptunaState.COMPLETE, OptunaState.PRUNED):
                ended.append(trial)
            elif trial.state == OptunaState.FAIL:
                if blames_point(trial.user_attrs.get("result", {}).get("failure")):
                    self.failed[trial.number] = self._atlas.known(trial)
            else:
                self._open.append(place)
                if rests(trial):
                    self.paused.add(trial.number)
                    ended.append(trial)
                elif trial.state == OptunaState.RUNNING and trial.number != asked:
                    self.running.append(self._atlas.known(trial))
        if ended:
            self._insert(ended)

    def _forget(self, numbers: set[int]) -> None:
        """Take out trials that rested at the look before: they may have been taken up since."""
        if not numbers:
            return
        kept = np.array([number not in numbers for number in self.numbers], bool)
        self.numbers, self.finished = self.numbers[kept], self.finished[kept]
        self.values, self.costs = self.values[kept], self.costs[kept]
        self.limited = self.limited[kept]
        self.points = [p for p, k in zip(self.points, kept, strict=True) if k]
        self._curves = [c for c, k in zip(self._curves, kept, strict=True) if k]

    def _insert(self, trials: list[Any]) -> None:
        finished = [trial.state == OptunaState.COMPLETE for trial in trials]
        values = [
            [trial.values[c] if whole else np.nan for c in self._columns]
            for trial, whole in zip(trials, finished, strict=True)
        ]
        known = [self._atlas.known(trial) for trial in trials]
        numbers = np.concatenate([self.numbers, [trial.number for trial in trials]])
        order = np.argsort(numbers)
        self.numbers = numbers[order]
        self.finished = np.concatenate([self.finished, finished])[order]
        self.values = np.concatenate([self.values, np.array(values)])[order]
        self.limited = np.concatenate([self.limited, [self._metrics(t) for t in trials]])[order]
        self.costs = np.concatenate([self.costs, [k.costs for k in known]])[order]
        points, curves = self.points + known, self._curves + [self._curve(t) for t in trials]
        self.points = [points[i] for i in order]
        self._curves = [curves[i] for i in order]

    def _metrics(self, trial: Any) -> list[float]:
        """The limited metrics of a finished trial."""
        known = trial.user_attrs.get("result", {}).get("metrics", {})
        whole = trial.state == OptunaState.COMPLETE
        return [known.get(name, np.nan) if whole else np.nan for name in self._limited]

    def _curve(self, trial: Any) -> Floats:
        """What was measured after every epoch, (measured, epochs); empty where some is missing."""
        known = trial.user_attrs
        history = known.get("result", known.get(PAUSE, {})).get("history", {})
        columns = [history.get(name) for name in self._measured]
        if not columns or any(c is None or None in c for c in columns):
            return NO_CURVE
        return np.array(columns, dtype=float)

    def outcomes(self) -> tuple[list[Known], Floats]:
        """The trials that succeeded or failed for a reason of their point, by number, with 1 or
        0."""
        ended = {int(n): (k, 1.0) for n, k in zip(self.numbers, self.points, strict=True)}
        ended |= {n: (k, 0.0) for n, k in self.failed.items()}
        told = [ended[n] for n in sorted(ended)]
        return [known for known, _ in told], np.array([success for _, success in told])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many epochs of every trial are known."""
        return np.array([curve.shape[1] for curve in self._curves], np.int64)

    def missed(self, weights: Floats, epochs: int) -> Floats:
        """By how much the end of every finished trial is above what its quality after so many
        epochs would have been extrapolated to; nan where that is not known."""
        missed = np.full(len(self._curves), np.nan)
        known = np.flatnonzero(self.finished & (self.lengths > epochs))
        curves = [weights @ self._curves[i] for i in known]
        line = Extrapolation.of(curves[-CURVES:], epochs)
        if line is not None:
            missed[known] = [c[-1] - line.end(c[epochs - 1]) for c in curves]
        return missed

    def qualities(self, weights: Floats) -> tuple[Floats, Floats]:
        """Scalar quality and extra noise variance of every trial. The quality of a stopped trial is
        extrapolated from finished trials that had the same value at that epoch, with the variance
        of the extrapolation; nan where there are too few of them."""
        quality = np.asarray(self.values @ weights)
        noise = np.zeros(len(quality))
        stopped = np.flatnonzero(~self.finished)
        if len(stopped):
            ends = np.flatnonzero(np.isfinite(quality))[-CURVES:]
            whole = [weights @ self._curves[i] for i in ends if self._curves[i].size]
            lengths = self.lengths[stopped]
            for epochs in set(lengths.tolist()):
                line = Extrapolation.of(whole, epochs)
                if line is not None:
                    here = stopped[lengths == epochs]
                    last = np.array([weights @ self._curves[i][:, -1] for i in here])
                    quality[here], noise[here] = line.end(last), line.variance
        return quality, noise
