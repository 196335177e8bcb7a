"""When a search ends before its number of trials: after so many hours, or when little is left to
gain. No further trial begins then; those that run are finished."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from bitfront.search.config.schema import SearchSpec
from bitfront.search.deciding.outlook import Outlook, percent

# The keys of the notes in the ledger: why no trial begins any more, and the seconds so far.
ENDING, SPENT = "ending", "spent"
HOURS, GAIN = "hours", "gain"


@dataclass(frozen=True)
class Reached:
    """What ended a search: its hours, or the gain that is left."""

    what: str
    """`hours` or `gain`"""
    at: float
    """the hours or the gain that the search was asked to end at"""
    trials: int
    """how many had begun"""

    def holds(self, spec: SearchSpec) -> bool:
        """Whether the search is still to end there: not where it was given more hours, is to go on
        to a smaller gain, or counts its trials alone."""
        if self.what == HOURS:
            return spec.hours is not None and spec.hours <= self.at
        return spec.until is not None and spec.until.gain >= self.at

    def sentence(self) -> str:
        """In a line."""
        if self.what == HOURS:
            return f"Over after {hours_in_words(self.at)}, with {self.trials} trials."
        return (
            f"Enough after {self.trials} trials: ten more would raise the hypervolume by less than "
            f"{percent(self.at)}, with a chance of 90 %."
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Reached | None:
        """What a ledger holds; None in one without it, a ValueError where it is damaged."""
        if data is None:
            return None
        try:
            found = cls(**data)
        except TypeError:
            raise ValueError("its ending") from None
        if found.what not in (HOURS, GAIN) or not all(
            type(n) in (int, float) and math.isfinite(n) for n in (found.at, found.trials)
        ):
            raise ValueError("its ending")
        return found


class Notes(Protocol):
    """The part of a ledger that is needed here."""

    @property
    def begun(self) -> int: ...

    @property
    def outlook(self) -> Outlook | None: ...

    def note(self, key: str, value: Any) -> None: ...

    def noted(self, key: str) -> Any: ...


class Ending:
    """Decides, whenever a trial could begin, whether none does. Hours are those in which trials
    run, from the first one of a turn on, all turns together; they are counted where the search has
    a number of hours."""

    def __init__(
        self, spec: SearchSpec, ledger: Notes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec, self._ledger, self._clock = spec, ledger, clock
        self._before = float(ledger.noted(SPENT) or 0.0) if spec.hours else 0.0
        self._since: float | None = None
        self.reached = Reached.from_json(ledger.noted(ENDING))
        """what ended the search; None while it goes on"""
        if self.reached is not None and not self.reached.holds(spec):
            self.reached = None

    def over(self) -> bool:
        """Whether no further trial begins; the reason is kept in the ledger."""
        if self._since is None:
            self._since = self._clock()
        if self.reached is None:
            self.reached = self._reason()
            if self.reached is not None:
                self._ledger.note(ENDING, self.reached.as_json())
        return self.reached is not None

    def _reason(self) -> Reached | None:
        trials = self._ledger.begun
        left = self.seconds_left
        if left is not None and left <= 0 and self._spec.hours is not None:
            return Reached(HOURS, self._spec.hours, trials)
        until, ahead = self._spec.until, self._ledger.outlook
        if until is not None and ahead is not None and ahead.high < until.gain:
            return Reached(GAIN, until.gain, trials)
        return None

    @property
    def spent(self) -> float:
        """Seconds in which trials ran, in all turns."""
        here = 0.0 if self._since is None else self._clock() - self._since
        return self._before + here

    @property
    def seconds_left(self) -> float | None:
        """Until no trial begins any more; None where the search has no hours."""
        hours = self._spec.hours
        return None if hours is None else max(0.0, 3600 * hours - self.spent)

    def keep(self) -> None:
        """Store the time so far for later turns."""
        if self._spec.hours is not None and self._since is not None:
            self._ledger.note(SPENT, round(self.spent, 1))


def hours_in_words(hours: float) -> str:
    """`1 hour`, `2.5 hours`."""
    return f"{hours:g} hour" if hours == 1 else f"{hours:g} hours"


def asked_in_words(spec: SearchSpec) -> str:
    """What ends a search besides its trials: `2 hours`, `less than 0.1 % to gain`; empty where
    nothing does."""
    found = [] if spec.hours is None else [hours_in_words(spec.hours)]
    if spec.until is not None:
        found.append(f"less than {percent(spec.until.gain)} to gain in ten trials")
    return " or ".join(found)
