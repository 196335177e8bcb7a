"""Times of a search without the gaps between its turns, in which nothing was trained."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

# Seconds without any training that are no pause: trials are sent, workers start.
LEAST_GAP = 60.0


def span(
    started: float | None, ended: float | None, trained: float | None
) -> tuple[float, float] | None:
    """When a trial that has ended was trained. One that took much longer than its `trained` seconds
    was interrupted, or rested: its last part counts."""
    if ended is None or started is None:
        return None
    if trained is None or ended - started <= 1.5 * trained + LEAST_GAP:
        return started, ended
    return ended - trained, ended


class BusyClock:
    """Converts times into seconds in which at least one trial was being trained, counted from the
    first one. Gaps of less than `least_gap` seconds are kept."""

    def __init__(
        self, spans: Iterable[tuple[float, float]] = (), least_gap: float = LEAST_GAP
    ) -> None:
        self._parts: list[tuple[float, float, float]] = []  # begin, end, seconds before it
        for began, ended in sorted(spans):
            if not (math.isfinite(began) and math.isfinite(ended)):
                continue
            if self._parts and began <= self._parts[-1][1] + least_gap:
                first, until, before = self._parts[-1]
                self._parts[-1] = first, max(until, ended), before
            else:
                self._parts.append((began, ended, self.total))

    @property
    def total(self) -> float:
        """All busy seconds."""
        if not self._parts:
            return 0.0
        began, ended, before = self._parts[-1]
        return before + ended - began

    @property
    def gaps(self) -> list[float]:
        """Where gaps were left out, in busy seconds."""
        return [before for _, _, before in self._parts[1:]]

    def at(self, time: float) -> float:
        """The busy seconds before a time."""
        place = bisect_right(self._parts, time, key=lambda part: part[0])
        if place == 0:
            return 0.0
        began, ended, before = self._parts[place - 1]
        return before + min(time, ended) - began
