"""The trials of a study as `free-cost` sees them: those that have ended as arrays, and those that
run. Kept between asks: an ask looks only at trials that had not ended at the ask before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import TrialState as OptunaState

from bitfront.search.failing import OF_MACHINES
from bitfront.search.ledger.entry import LOOK, PAUSE
from bitfront.search.samplers.surrogate.atlas import Atlas, Known
from bitfront.search.samplers.surrogate.learning_curves import Extrapolation
from bitfront.search.samplers.surrogate.model import Floats

# Learning curves that a stopped trial is compared with: those of the newest finished trials.
CURVES = 1000
NO_CURVE = np.zeros((0, 0))
# In place of the number of epochs after which something is known of a trial: its look.
LOOKED = -1


def blames_point(failure: str | None) -> bool:
    """Whether a trial failed for a reason of its point: nan, out of memory, an error. What the
    sampler proposed and the ledger turned down has no reason."""
    return failure is not None and failure not in OF_MACHINES


def rests(trial: Any) -> bool:
    """Whether a trial is paused, at a rung or after a look."""
    noted = (trial.user_attrs.get(key) for key in (PAUSE, LOOK))
    return trial.state == OptunaState.RUNNING and any(n and n["rests"] for n in noted)


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
        self._looks: Floats = np.zeros((0, len(columns)))
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
        self.limited, self._looks = self.limited[kept], self._looks[kept]
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
        self._looks = np.concatenate([self._looks, [self._look(t) for t in trials]])[order]
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

    def _look(self, trial: Any) -> list[float]:
        """What a look at the trial measured at its end, nan where there was none."""
        history = (trial.user_attrs.get(LOOK) or {}).get("history", {})
        ends = [(history.get(name) or [None])[-1] for name in self._measured]
        return [np.nan if end is None else end for end in ends]

    def outcomes(self) -> tuple[list[Known], Floats]:
        """The trials that succeeded or failed for a reason of their point, by number, with 1 or
        0."""
        ended = {int(n): (k, 1.0) for n, k in zip(self.numbers, self.points, strict=True)}
        ended |= {n: (k, 0.0) for n, k in self.failed.items()}
        told = [ended[n] for n in sorted(ended)]
        return [known for known, _ in told], np.array([success for _, success in told])

    @property
    def looked(self) -> NDArray[np.bool_]:
        """Whether nothing but a look is known of a trial."""
        begun = np.array([bool(curve.size) for curve in self._curves], bool)
        return np.asarray(~self.finished & ~begun & np.isfinite(self._looks).all(1))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many epochs of every trial are known; LOOKED where nothing but a look is."""
        known = np.array([curve.shape[1] for curve in self._curves], np.int64)
        return np.where(self.looked, LOOKED, known)

    def _early(self, weights: Floats, epochs: int) -> Floats:
        """The quality of every trial after so many epochs, nan where it is not known."""
        if epochs == LOOKED:
            return np.asarray(self._looks @ weights)
        known = [c.shape[1] >= epochs > 0 for c in self._curves]
        pairs = zip(self._curves, known, strict=True)
        return np.array([weights @ c[:, epochs - 1] if k else np.nan for c, k in pairs])

    def _line(self, weights: Floats, epochs: int) -> tuple[Extrapolation | None, Floats]:
        """What the quality after so many epochs says of the end, by the newest finished trials; and
        that quality of every trial."""
        early, ends = self._early(weights, epochs), np.asarray(self.values @ weights)
        longer = self.finished & np.isfinite(early) & np.isfinite(ends)
        if epochs != LOOKED:
            longer &= self.lengths > epochs
        told = np.flatnonzero(longer)[-CURVES:]
        return Extrapolation.of(early[told], ends[told]), early

    def missed(self, weights: Floats, epochs: int) -> Floats:
        """By how much the end of every finished trial is above what its quality after so many
        epochs would have been extrapolated to; nan where that is not known."""
        line, early = self._line(weights, epochs)
        if line is None:
            return np.full(len(early), np.nan)
        longer = self.finished & ((self.lengths > epochs) | (epochs == LOOKED))
        return np.where(longer, self.values @ weights - line.end(early), np.nan)

    def qualities(self, weights: Floats) -> tuple[Floats, Floats]:
        """Scalar quality and extra noise variance of every trial. The quality of a stopped trial is
        extrapolated from finished trials that had the same value at that epoch, or at their look,
        with the variance of the extrapolation; nan where there are too few of them."""
        quality = np.asarray(self.values @ weights)
        noise = np.zeros(len(quality))
        stopped = np.flatnonzero(~self.finished)
        if len(stopped):
            lengths = self.lengths[stopped]
            for epochs in set(lengths.tolist()) - {0}:
                line, early = self._line(weights, epochs)
                if line is not None:
                    here = stopped[lengths == epochs]
                    quality[here], noise[here] = line.end(early[here]), line.variance
        return quality, noise
