"""The values of `space` as models: `{float: [a, b], log: true}`, `{int: [a, b], step: n}`,
`{choice: [...]}`, a list, a single value, and schedules of them. Which keys there are, and what
each of them accepts, is checked in `space`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool

from bitfront.search.config.errors import KeyPath, KeyProblem
from bitfront.search.config.mistakes import validated
from bitfront.trainables.errors import did_you_mean
from bitfront.trainables.parameters import Choice, Confidence, Domain, Float, Int, Prior, Value
from bitfront.trainables.settings import Strict


def _listed(given: Any) -> Any:
    if not isinstance(given, list):
        raise ValueError("give a list")
    return given


def _two_numbers(given: list[Any]) -> list[Any]:
    numbers = [v for v in given if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(given) != 2 or len(numbers) != 2:
        raise ValueError(f"give two numbers [low, high], got {given}")
    return given


def _whole(given: list[Any]) -> list[int]:
    if not all(float(v).is_integer() for v in given):
        raise ValueError(f"whole numbers, got {given}")
    return [int(v) for v in given]


def _single(value: Any) -> Value:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"{value!r} is not a single value")
    return value


Listed = Annotated[list[Any], BeforeValidator(_listed)]
TwoNumbers = Annotated[Listed, AfterValidator(_two_numbers)]
Values = Annotated[Listed, AfterValidator(lambda given: [_single(value) for value in given])]


class PriorSpec(Strict):
    """The value that is believed best: `prior: 0.01, confidence: high`."""

    prior: Any = None
    confidence: Confidence = "medium"

    @property
    def belief(self) -> Prior | None:
        """The prior; a ValueError where there is a confidence in nothing."""
        if self.prior is None:
            if "confidence" in self.model_fields_set:
                raise ValueError("confidence without a prior: give prior too")
            return None
        return Prior(_single(self.prior), self.confidence)


class FloatSpec(PriorSpec):
    """A number in a range: `{float: [low, high], log: true}`."""

    bounds: TwoNumbers = Field(alias="float")
    log: StrictBool = False

    def domain(self) -> Float:
        """The range; a ValueError where its ends are the wrong way round."""
        low, high = self.bounds
        return Float(float(low), float(high), self.log, self.belief)


class IntSpec(PriorSpec):
    """A whole number in a range: `{int: [low, high], step: n}`."""

    bounds: Annotated[TwoNumbers, AfterValidator(_whole)] = Field(alias="int")
    step: int = 1
    log: StrictBool = False

    def domain(self) -> Int:
        """The range; a ValueError where its ends are the wrong way round."""
        low, high = self.bounds
        return Int(low, high, self.step, self.log, self.belief)


class ChoiceSpec(PriorSpec):
    """One of a list of values: `{choice: [a, b, c]}`."""

    values: Values = Field(alias="choice")

    def domain(self) -> Choice:
        """The choice; a ValueError where there is nothing to choose."""
        return Choice(tuple(self.values), self.belief)


KINDS: dict[str, type[FloatSpec] | type[IntSpec] | type[ChoiceSpec]] = {
    "float": FloatSpec,
    "int": IntSpec,
    "choice": ChoiceSpec,
}


def parse_domain(path: KeyPath, raw: Any) -> Domain:
    """The domain that a value of `space` stands for; a list is short for a choice, a single value
    for a choice of one. A mistake is raised as a KeyProblem at `path`."""
    try:
        if isinstance(raw, list):
            return Choice(tuple(_single(value) for value in raw))
        if not isinstance(raw, dict):
            return Choice((_single(raw),))
        kind = next((k for k in KINDS if k in raw), None)
        if kind is None:
            word = next(iter(raw), "")
            raise ValueError(f"unknown kind '{word}', {did_you_mean(str(word), KINDS)}")
        return validated(KINDS[kind], raw, path).domain()
    except ValueError as error:
        raise KeyProblem(path, str(error)) from None


class ScheduleSpec(Strict):
    """A path over fractions of training: `{from: 5, to: 30, until: 0.8, shape: cosine}`. Each part
    is a value of its own: a number, a list or a range."""

    start: Any = Field(default=None, alias="from")
    end: Any = Field(default=None, alias="to")
    until: Any = None
    shape: Any = None

    def parts(self) -> dict[str, tuple[str, Any]]:
        """(key in the YAML, value) of the parts that are given, by what declarations call them."""
        fields = type(self).model_fields
        return {
            name: (fields[name].alias or name, getattr(self, name))
            for name in fields
            if name in self.model_fields_set
        }
