"""One trial as the ledger knows it, whoever reads it. No torch, no Ray, no Optuna."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import Any

from pydantic import ValidationError

from bitfront.search.ledger.folder import is_name
from bitfront.search.ledger.states import OPTUNA_STATES, TrialState
from bitfront.trainables.errors import UserError, quoted
from bitfront.trainables.plan import LEVELS
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.text_files import LARGEST_INTEGER

# What is drawn of a plan besides its levels.
PLAN_SETTINGS = ("plan.selector", "plan.budget", "plan.seed")


@dataclass
class Entry:
    """Costs, settings and what became of it."""

    id: str
    number: int
    state: TrialState
    stored: TrialSpec | str | dict[str, Any]
    """its spec, or the JSON of it as long as nobody has looked"""
    costs: dict[str, float]
    point: str = ""
    """the same for trials that differ in nothing but their seed"""
    drawn: dict[str, Any] = field(default_factory=dict)
    values: list[float] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    failure: str | None = None
    message: str | None = None
    lives: int = 0
    started: float | None = None
    ended: float | None = None
    seeds: int = 1
    """how many trials the metrics are means of"""
    spread: float | None = None
    """standard deviation over seeds as the search estimates it from all points together: of a
    single one no statement"""
    own_spread: float | None = None
    """sample standard deviation over the seeds of this point; None with one seed"""
    confidence: float | None = None
    """probability that no other point dominates this one"""
    restated: bool = False
    """of a ledger of version 0.1, whose `flops_pct` was of the trial's own network"""

    @property
    def spec(self) -> TrialSpec:
        """Checked when somebody looks: who reads thousands of trials looks at a few."""
        if not isinstance(self.stored, TrialSpec):
            as_text = isinstance(self.stored, str)
            check = TrialSpec.model_validate_json if as_text else TrialSpec.model_validate
            try:
                self.stored = check(self.stored)  # type: ignore[arg-type]
            except ValidationError:
                raise UserError(
                    f"trial {self.number} of the ledger is damaged, or of another version"
                ) from None
            if not set(self.stored.plan) <= set(LEVELS):
                raise UserError(f"trial {self.number} of the ledger is damaged: its plan")
        return self.stored

    @property
    def seconds(self) -> float | None:
        if self.started is None or self.ended is None:
            return None
        return self.ended - self.started

    def restate(self, full_flops: float) -> None:
        """Of a trial of version 0.1: its stored `flops_pct` is of its own network; from here on it
        is of the search's dearest one, which costs `full_flops` in full precision."""
        if "flops_own_pct" not in self.costs:
            own, share = self.costs["flops_pct"], 100.0 * self.costs["flops"] / full_flops
            self.costs = {**self.costs, "flops_pct": share, "flops_own_pct": own}
            self.restated = True


def stored_entry(
    number: int,
    state: str,
    known: Mapping[str, Any],
    drawn: dict[str, Any],
    values: list[float] | None,
    started: datetime | None,
    ended: datetime | None,
    objectives: Sequence[str] = (),
) -> Entry:
    """A trial from what the ledger has of it; `known` are its attributes there. Its values are
    those of `objectives`, in that order, where their names are known."""
    if not isinstance(known["id"], str) or not is_name(known["id"]):  # the name of a folder
        raise UserError(f"trial {number} of the ledger has no usable id: {quoted(known['id'])}")
    result = known.get("result", {})
    wrong = _wrong(number, known, result, values)
    if wrong is not None:
        raise UserError(f"trial {quoted(number)} of the ledger is damaged: {wrong}")
    return Entry(
        id=known["id"],
        number=number,
        state=OPTUNA_STATES[state],
        stored=known["spec"],
        costs=known["costs"],
        point=known["point"],
        drawn=drawn,
        values=_by_name(objectives, {**known["costs"], **result.get("metrics", {})}, values),
        metrics=result.get("metrics", {}),
        history=rows(result.get("history", {})),
        failure=result.get("failure"),
        message=result.get("message"),
        lives=result.get("lives", 0),
        started=started.timestamp() if started else None,
        ended=ended.timestamp() if ended else None,
    )


def _wrong(
    number: Any, known: Mapping[str, Any], result: Any, values: list[float] | None
) -> str | None:
    """What of a trial is not as it was written; everything else may rely on its types."""
    if type(number) is not int:
        return "its number"
    if not isinstance(known["point"], str):
        return "point"
    if not isinstance(known["spec"], str | dict):
        return "spec"
    if not isinstance(known["costs"], dict) or not are_numbers(known["costs"].values()):
        return "costs"
    if not are_numbers(values or []):
        return "values"
    if not isinstance(result, dict):
        return "result"
    metrics, columns = result.get("metrics", {}), result.get("history", {})
    if not isinstance(metrics, dict) or not are_numbers(metrics.values()):
        return "metrics"
    if not isinstance(columns, dict) or not all(
        isinstance(column, list) and are_numbers(v for v in column if v is not None)
        for column in columns.values()
    ):
        return "history"
    texts = (result.get(key) for key in ("failure", "message"))
    if not all(text is None or isinstance(text, str) for text in texts):
        return "message"
    return None if type(result.get("lives", 0)) is int else "lives"


def are_numbers(values: Iterable[Any]) -> bool:
    """Whether all are numbers that a float can hold."""
    return all(type(v) is float or (type(v) is int and abs(v) <= LARGEST_INTEGER) for v in values)


def _by_name(
    objectives: Sequence[str], measured: Mapping[str, float], stored: list[float] | None
) -> list[float] | None:
    """Values have no names in Optuna's tables, what was measured does: version 0.1 wrote those of a
    YAML whose objectives had changed places over one another."""
    if stored is None or not objectives or not all(name in measured for name in objectives):
        return stored
    return [float(measured[name]) for name in objectives]


def without_plan(params: Mapping[str, Any]) -> dict[str, Any]:
    """What was drawn besides the levels of the plan, which is one string of its own."""
    return {n: v for n, v in params.items() if n in PLAN_SETTINGS or not n.startswith("plan.")}


def rows(columns: Mapping[str, list[float | None]]) -> list[dict[str, float]]:
    """Learning curves, a row an epoch, from a list a metric."""
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip_longest(*columns.values())
    ]
