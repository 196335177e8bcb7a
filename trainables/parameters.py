"""Parameters: the domains a search draws from, and the declarations of the parameters of methods,
models and selectors. Nothing here knows samplers or YAML."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from bitfront.trainables.errors import UnknownNameError, UserError, did_you_mean

Value = bool | int | float | str
Confidence = Literal["low", "medium", "high"]


@dataclass(frozen=True)
class Prior:
    """Where the best value of a domain is believed to be. It steers a search and excludes
    nothing."""

    value: Value
    confidence: Confidence = "medium"

    def describe(self) -> str:
        return f"{_word(self.value)} ({self.confidence})"


@dataclass(frozen=True)
class Float:
    """A real number in [low, high], on a linear or a logarithmic scale."""

    low: float
    high: float
    log: bool = False
    prior: Prior | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"range [{self.low}, {self.high}] is not finite")
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"a log range starts above 0, not at {self.low:g}")
        _check_prior(self)

    def contains(self, value: Any) -> bool:
        return _is_number(value) and self.low <= value <= self.high

    def describe(self) -> str:
        return f"{self.low:g}..{self.high:g}" + (" (log)" if self.log else "")

    @property
    def size(self) -> float:
        return 1 if self.low == self.high else math.inf


@dataclass(frozen=True)
class Int:
    """A whole number in low, low + step, ..., high."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    prior: Prior | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if self.step < 1:
            raise ValueError(f"step {self.step} is below 1")
        if self.log and self.low <= 0:
            raise ValueError(f"a log range starts above 0, not at {self.low}")
        if self.log and self.step != 1:
            raise ValueError("a log range takes no step")
        # `high` becomes the greatest value that is reached by whole steps.
        object.__setattr__(self, "high", self.low + (self.high - self.low) // self.step * self.step)
        _check_prior(self)

    def contains(self, value: Any) -> bool:
        return (
            _is_number(value)
            and float(value).is_integer()
            and self.low <= value <= self.high
            and (int(value) - self.low) % self.step == 0
        )

    def describe(self) -> str:
        step = f" step {self.step}" if self.step != 1 else ""
        return f"{self.low}..{self.high}{step}" + (" (log)" if self.log else "")

    @property
    def size(self) -> float:
        return (self.high - self.low) // self.step + 1


@dataclass(frozen=True)
class Choice:
    """One of a list of values."""

    values: tuple[Value, ...]
    prior: Prior | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a choice needs at least one value")
        if len({(type(v), v) for v in self.values}) != len(self.values):
            raise ValueError(f"a choice lists a value twice: {list(self.values)}")
        _check_prior(self)

    def contains(self, value: Any) -> bool:
        return any(
            value == v and isinstance(value, bool) == isinstance(v, bool) for v in self.values
        )

    def describe(self) -> str:
        return "{" + ", ".join(_word(v) for v in self.values) + "}"

    @property
    def size(self) -> float:
        return len(self.values)


Domain = Float | Int | Choice


def _check_prior(domain: Domain) -> None:
    prior = domain.prior
    if prior is not None and not domain.contains(prior.value):
        raise ValueError(f"prior: {_word(prior.value)} is not in {domain.describe()}")


@dataclass(frozen=True)
class Anything:
    """Any value: what an argument of the user's own code accepts is for that code to say."""

    def contains(self, value: Any) -> bool:
        return True

    def describe(self) -> str:
        return "any value"


@dataclass(frozen=True)
class Param:
    """A declared parameter: its default, the values it accepts, the range worth searching."""

    default: Any
    domain: Domain | Anything
    doc: str = ""
    search: Domain | None = None
    later: bool = False
    """added after version 0.1: part of a trial's id only where it is not the default"""

    def check(self, name: str, value: Any) -> Value:
        """The value converted to the parameter's type; a UserError that names the accepted values
        for any other."""
        if isinstance(self.domain, Anything):
            given: Value = value
            return given
        if isinstance(self.domain, Choice):
            if not self.domain.contains(value):
                hint = did_you_mean(str(value), [_word(v) for v in self.domain.values])
                raise UnknownNameError(f"{name}: {_word(value)} is not accepted, {hint}")
            return next(v for v in self.domain.values if Choice((v,)).contains(value))
        if not self.domain.contains(value):
            raise UserError(f"{name}: {_word(value)} is outside {self.domain.describe()}")
        return int(value) if isinstance(self.domain, Int) else float(value)

    def describe(self) -> dict[str, Any]:
        """The machine-readable form `bitfront methods --json` prints."""
        searched = self.search or self.domain
        return {
            "default": self.default,
            "range": searched.describe(),
            "accepts": self.domain.describe(),
            "doc": self.doc,
        }


def resolve(
    owner: str, declared: dict[str, Param], given: dict[str, Any], check: bool = True
) -> dict[str, Value]:
    """The values of all declared parameters: the given one, else the default."""
    for name in given:
        if name not in declared:
            raise UnknownNameError(f"{owner}.{name}: unknown key, {did_you_mean(name, declared)}")
    out: dict[str, Value] = {}
    for name, param in declared.items():
        value = given.get(name, param.default)
        out[name] = param.check(f"{owner}.{name}", value) if check else value
    return out


def without_later(declared: dict[str, Param], values: dict[str, Value]) -> dict[str, Value]:
    """The values that ids are computed from: those of parameters that were added later only where
    they are not the default, so that older ids stay the same."""
    return {
        name: value
        for name, value in values.items()
        if name not in declared or not declared[name].later or value != declared[name].default
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
