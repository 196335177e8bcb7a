"""How good the model of a search is: how well it predicts each trial from all others. Computed by
the sampler, kept in the ledger, shown by `status`, the end of a search and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The key of the note in the ledger, and after how many trials it is written again.
HEALTH, EVERY = "model", 5
# With fewer trials nothing is said.
LEAST = 12
# The share of trials that a normal distribution has within 1.2816 deviations.
RANGE, DEVIATIONS = 0.8, 1.2816


@dataclass(frozen=True)
class ModelHealth:
    """The model against trials that it was not told of (leave one out)."""

    trials: int
    rank_correlation: float
    """Spearman's, of predicted and measured quality"""
    explained: float
    """1 less the squared error as a share of that of the mean of all other trials; 0 or less where
    the model is no better than the mean"""
    within: float
    """the share of trials within the model's 80 % range"""

    @property
    def blind(self) -> bool:
        """Whether the model is no better than the mean of the trials; it explores then."""
        return self.trials >= LEAST and self.explained <= 0

    def sentence(self) -> str:
        """What to make of it, in a line; empty where there are too few trials."""
        if self.trials < LEAST:
            return ""
        told = (
            f"The model, asked about each of {self.trials} trials without it: rank correlation "
            f"{self.rank_correlation:.2f}, {100 * self.within:.0f} % within its "
            f"{100 * RANGE:.0f} % range."
        )
        if self.blind:
            return f"{told} It is no better than their mean, so the search explores."
        return told

    def as_json(self) -> dict[str, Any]:
        return {
            "trials": self.trials,
            "rank_correlation": self.rank_correlation,
            "explained": self.explained,
            "within": self.within,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> ModelHealth | None:
        """What a ledger holds; None in one without it, a ValueError where it is damaged."""
        if data is None:
            return None
        try:
            found = cls(**data)
        except TypeError:
            raise ValueError("its model") from None
        numbers = found.as_json().values()
        if not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            raise ValueError("its model")
        return found
