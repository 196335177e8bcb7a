"""How the hypervolume of a search grew, trial by trial. The picture of it is in
`dashboards.figures.trials.hypervolume`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.limits import missed
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import ideal_point
from bitfront.search.results.view import HypervolumeStep

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Growth:
    """The hypervolume after every trial that ended, as a share of the box from the reference to a
    perfect network that costs nothing. A point with several seeds counts with its mean."""

    def __init__(self, config: SearchConfig, reference: Sequence[float]) -> None:
        import numpy as np

        self._signs = np.array([o.sign for o in config.front_objectives], dtype=float)
        self._limit = np.array(reference, dtype=float) * self._signs
        self._box = float(np.prod(self._limit - np.array(ideal_point(config)) * self._signs))
        self._losses: NDArray[np.float64] = np.empty((64, len(self._signs)))
        self._limits = config.measured_limits
        self._metrics: dict[str, dict[str, float]] = {}
        self._keeps = np.ones(64, dtype=bool)
        self._rows: dict[str, int] = {}
        self._seeds: dict[str, int] = {}
        self._front: NDArray[np.float64] = np.empty((0, len(self._signs)))
        self._counted: set[str] = set()
        self._first: float | None = None
        self.steps: list[HypervolumeStep] = []

    def followed(self, entries: Sequence[Entry]) -> list[HypervolumeStep]:
        """All steps so far, those of trials that ended since the last call included."""
        new = [e for e in entries if e.ended is not None and e.id not in self._counted]
        if self._first is None:
            self._first = min((e.started for e in entries if e.started is not None), default=None)
        for entry in sorted(new, key=lambda e: (e.ended or 0.0, e.number)):
            self._counted.add(entry.id)
            share = self.steps[-1].share if self.steps else 0.0
            if entry.state == TrialState.COMPLETE and entry.values is not None:
                share = self._counted_in(entry, entry.values, share)
            seconds = (entry.ended or 0.0) - (self._first or 0.0)
            self.steps.append(HypervolumeStep(len(self._counted), seconds, share))
        return list(self.steps)

    def _kept(self, entry: Entry) -> bool:
        """Whether the point keeps the limits on what is measured, by the means over its seeds."""
        seeds = self._seeds[entry.point]
        known = self._metrics.setdefault(entry.point, {})
        for name in self._limits:
            value = entry.metrics.get(name, math.nan)
            known[name] = known.get(name, 0.0) + (value - known.get(name, 0.0)) / seeds
        return not missed(self._limits, known)

    def _counted_in(self, entry: Entry, values: Sequence[float], share: float) -> float:
        """The hypervolume share after adding one more trial of its point."""
        import moocore
        import numpy as np

        point = entry.point
        losses = np.array(values, dtype=float) * self._signs
        if point in self._rows:
            row = self._rows[point]
            self._seeds[point] += 1
            self._losses[row] += (losses - self._losses[row]) / self._seeds[point]
        else:
            row = len(self._rows)
            if row == len(self._losses):
                self._losses = np.concatenate([self._losses, np.empty_like(self._losses)])
                self._keeps = np.concatenate([self._keeps, np.ones_like(self._keeps)])
            self._rows[point], self._seeds[point], self._losses[row] = row, 1, losses
        if self._limits:
            self._keeps[row] = self._kept(entry)
        if self._seeds[point] == 1:
            if not self._keeps[row]:
                return share
            if (self._front <= losses).all(1).any():
                return share
        count = len(self._rows)
        all_losses = self._losses[:count][self._keeps[:count]]
        if not len(all_losses):
            self._front = all_losses
            return 0.0
        self._front = all_losses[moocore.is_nondominated(all_losses)]
        return float(moocore.hypervolume(self._front, ref=self._limit)) / self._box
