"""What a search may still expect: by how much its next trials raise the hypervolume. Computed by
the sampler, kept in the ledger, shown while a search runs, at its end, by `status` and on the
pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The key of the note in the ledger.
OUTLOOK = "outlook"
# So many trials are looked ahead, and nothing is said before so many have ended.
AHEAD, LEAST = 10, 12
# The share of cases in which the gain is within the range.
RANGE = 0.8


@dataclass(frozen=True)
class Try:
    """A point that is hoped to raise the hypervolume, and was not tried yet."""

    params: Mapping[str, Any]
    """what is sampled besides the plan, by full names"""
    plan: str
    quality: float
    """the value of the measured objective that is expected of it"""
    costs: Mapping[str, float]


@dataclass(frozen=True)
class Outlook:
    """The gain of the next trials, those that run included, as a share of the hypervolume."""

    trials: int
    """how many had ended when it was made"""
    ahead: int
    """how many are looked ahead"""
    expected: float
    low: float
    high: float
    """the gain is below `low` with a chance of 10 %, and above `high` with one of 10 %"""
    tries: tuple[Try, ...] = ()
    """the most promising points, the best first"""

    @property
    def short(self) -> str:
        """For a line of progress: `next 10: +0.12 % (0 to 0.4)`."""
        low, high = percent(self.low).removesuffix(" %"), percent(self.high).removesuffix(" %")
        return f"next {self.ahead}: +{percent(self.expected)} ({low} to {high})"

    def sentence(self) -> str:
        """In a line."""
        return (
            f"{self.ahead} more trials are expected to raise the hypervolume by "
            f"{percent(self.expected)} ({100 * RANGE:.0f} % range: {percent(self.low)} to "
            f"{percent(self.high)}), as of {self.trials} trials."
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "tries": [asdict(each) for each in self.tries]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Outlook | None:
        """What a ledger holds; None in one without it, a ValueError where it is damaged."""
        if data is None:
            return None
        try:
            told = {**data, "tries": tuple(Try(**each) for each in data.get("tries", ()))}
            found = cls(**told)
            numbers = [n for name, n in vars(found).items() if name != "tries"]
            for each in found.tries:
                numbers += [each.quality, *each.costs.values()]
                if not (isinstance(each.plan, str) and isinstance(each.params, dict)):
                    raise TypeError
        except (TypeError, AttributeError):
            raise ValueError("its outlook") from None
        if not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            raise ValueError("its outlook")
        return found


def percent(share: float) -> str:
    """A share in percent, in two digits: `0.12 %`; less than a thousandth of a percent is 0."""
    value = 100 * share
    return "0 %" if value < 0.001 else f"{float(f'{value:.2g}'):g} %"
