"""One trial as the ledger knows it, whoever reads it. No torch, no Ray, no Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import Any

from pydantic import ValidationError

from search.home import is_name
from trainables.registry import UserError
from trainables.task import TrialSpec

# By the names Optuna writes.
STATES = {
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "RUNNING": "running",
    "WAITING": "waiting",
}
# What is drawn of a plan besides its levels.
PLAN_SETTINGS = ("plan.selector", "plan.budget", "plan.seed")


@dataclass
class Entry:
    """Costs, settings and what became of it."""

    id: str
    number: int
    state: str
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
    """standard deviation over seeds, as far as the search knows it"""
    confidence: float | None = None
    """probability that no other point dominates this one"""

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
                    f"trial {self.number} of the ledger is of another version"
                ) from None
        return self.stored

    @property
    def seconds(self) -> float | None:
        if self.started is None or self.ended is None:
            return None
        return self.ended - self.started


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
    if not is_name(known["id"]):  # it is the name of a folder
        raise UserError(f"trial {number} of the ledger has no usable id: {known['id']!r}")
    result = known.get("result", {})
    return Entry(
        id=known["id"],
        number=number,
        state=STATES[state],
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
