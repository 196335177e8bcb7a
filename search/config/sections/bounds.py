"""What must hold, and when it is enough: a limit on a cost or a metric, and the gain at which a
search ends."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from bitfront.trainables.errors import quoted
from bitfront.trainables.settings import Strict


class Limit(Strict):
    """What a trial must satisfy. A bare number is the worst value: a maximum, of accuracies a
    minimum."""

    min: float | None = None
    """at least this"""
    max: float | None = None
    """at most this; a bare number is short for it"""

    def violation(self, value: float) -> float:
        """How far the value is outside the limit: positive when violated, as in Optuna."""
        over = value - self.max if self.max is not None else float("-inf")
        under = self.min - value if self.min is not None else float("-inf")
        return max(over, under)

    def describe(self, name: str) -> str:
        """The limit as an inequality."""
        parts = [f"{name} <= {self.max:g}"] if self.max is not None else []
        parts += [f"{name} >= {self.min:g}"] if self.min is not None else []
        return " and ".join(parts)


class UntilSpec(Strict):
    """When a search ends by what it may still expect."""

    gain: Annotated[float, Field(gt=0, lt=1)]
    """no trial begins once the next ten will, with a chance of 90 %, raise the hypervolume by less
    than this share of it: `0.1%` or 0.001"""

    @field_validator("gain", mode="before")
    @classmethod
    def _percent(cls, given: Any) -> Any:
        """`0.1%` is short for 0.001."""
        if isinstance(given, str) and given.strip().endswith("%"):
            try:
                return float(given.strip()[:-1]) / 100
            except ValueError:
                raise ValueError(f"{quoted(given)} is no share: write 0.1% or 0.001") from None
        return given
