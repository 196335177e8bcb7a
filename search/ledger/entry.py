"""One trial of the ledger, for the driver and for readers alike. Imports neither torch nor Ray nor
Optuna. Reading the database is in `reader` and `storage`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bitfront.search.ledger.folder import is_name
from bitfront.search.ledger.states import OPTUNA_STATES, TrialState
from bitfront.trainables.errors import UserError, quoted
from bitfront.trainables.plan import LEVELS
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.text_files import LARGEST_INTEGER

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Parameters of a plan besides its levels.
PLAN_SETTINGS = ("plan.selector", "plan.budget", "plan.seed")
# The attribute of a trial that has paused: at which rung, its curve up to there, and whether it
# rests there still.
PAUSE = "pause"
# The attribute of a trial that was given weights of another one: see `Look`.
LOOK = "look"


@dataclass(frozen=True)
class Look:
    """A short training from the weights of another trial, which comes before the one from scratch
    that counts."""

    parent: str
    """the id of the trial whose weights it begins with"""
    distance: float
    epochs: int
    """how many it trains"""
    history: list[dict[str, float]] = field(default_factory=list)
    """its learning curve, once it has ended"""
    rests: bool = False
    """whether the trial waits for its training from scratch"""
    void: str | None = None
    """why there was no look, where the weights were not to be had"""

    def as_json(self) -> dict[str, Any]:
        return {
            "parent": self.parent,
            "distance": self.distance,
            "epochs": self.epochs,
            "history": columns(self.history),
            "rests": self.rests,
            "void": self.void,
        }

    @staticmethod
    def from_json(stored: dict[str, Any] | None) -> Look | None:
        return None if stored is None else Look(**{**stored, "history": rows(stored["history"])})


@dataclass
class Entry:
    """A trial: its spec, its costs, and its results once it has ended."""

    id: str
    number: int
    state: TrialState
    stored: TrialSpec | str | dict[str, Any]
    """its spec, or the JSON of it until `spec` is first read"""
    costs: dict[str, float]
    point: str = ""
    """a hash that trials share which differ in nothing but their seed"""
    drawn: dict[str, Any] = field(default_factory=dict)
    values: list[float] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    failure: str | None = None
    message: str | None = None
    traceback: str | None = None
    """of the exception it failed with, where it was one"""
    lives: int = 0
    rung: float | None = None
    """the last rung at which it paused, whether or not it was taken up again"""
    kept_bytes: int = 0
    """the size of the checkpoint with which it paused"""
    look: Look | None = None
    """what came before its training from scratch, where it inherited weights"""
    started: float | None = None
    ended: float | None = None
    seeds: int = 1
    """how many trials the metrics are means of"""
    spread: float | None = None
    """standard deviation over seeds, pooled over all points of the search"""
    own_spread: float | None = None
    """sample standard deviation over the seeds of this point; None with one seed"""
    confidence: float | None = None
    """probability that no other point dominates this one"""
    restated: bool = False
    """whether it is of version 0.1, whose `flops_pct` was of the trial's own network"""

    @property
    def spec(self) -> TrialSpec:
        """The spec, parsed and checked when it is first read: a command needs few of thousands."""
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
    def looking(self) -> bool:
        """Whether what runs, or ran last, is its look and not the training that counts."""
        return self.look is not None and not self.look.history and self.look.void is None

    @property
    def epochs_trained(self) -> int:
        """The epochs of its look and of its training from scratch together."""
        return len(self.history) + (len(self.look.history) if self.look is not None else 0)

    @property
    def seconds(self) -> float | None:
        """The time it was trained: the sum over its epochs, since the time between start and end
        includes the pause of a trial that was interrupted and resumed. A trial without a timed
        epoch has the time between start and end; one that has not ended has None."""
        if self.ended is None:
            return None
        epochs = [row["seconds"] for row in self.history if "seconds" in row]
        if epochs:
            return sum(epochs)
        return None if self.started is None else self.ended - self.started

    @property
    def cpu_seconds(self) -> float | None:
        """The processor's time of its epochs, which other work on the machine does not change; None
        where it was not measured."""
        epochs = [row["cpu_seconds"] for row in self.history if "cpu_seconds" in row]
        return sum(epochs) if epochs else None

    @property
    def why(self) -> str:
        """Why it failed, in a line: the reason and what was raised; an exception speaks for
        itself."""
        lines = (self.message or "").strip().splitlines()
        reason = self.failure or "error"
        if not lines:
            return reason
        return lines[0] if reason == "error" else f"{reason}: {lines[0]}"

    def restate(self, full_flops: float) -> None:
        """Convert a trial of version 0.1: its `flops_pct` was of its own network, and becomes one
        of the dearest network of the search, which costs `full_flops` in full precision."""
        if "flops_own_pct" not in self.costs:
            own, share = self.costs["flops_pct"], 100.0 * self.costs["flops"] / full_flops
            self.costs = {**self.costs, "flops_pct": share, "flops_own_pct": own}
            self.restated = True


def training_seconds(entries: Iterable[Entry]) -> float:
    """How long at least one of the trials was being trained, without the pauses between turns: the
    length of the union of the intervals that end with each trial and are as long as it trained."""
    spans = sorted(
        (e.ended - seconds, e.ended)
        for e in entries
        if e.ended is not None and (seconds := e.seconds) is not None
    )
    total, until = 0.0, -math.inf
    for began, ended in spans:
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


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
    """A trial from its rows in the database; `known` are its attributes there, checked. Its values
    are in the order of `objectives`, where these are given."""
    if not isinstance(known["id"], str) or not is_name(known["id"]):  # the name of a folder
        raise UserError(f"trial {number} of the ledger has no usable id: {quoted(known['id'])}")
    result, pause = known.get("result", {}), known.get(PAUSE)
    look = known.get(LOOK)
    wrong = _wrong(number, known, result, values) or _wrong_pause(pause) or _wrong_look(look)
    if wrong is not None:
        raise UserError(f"trial {quoted(number)} of the ledger is damaged: {wrong}")
    now = OPTUNA_STATES[state]
    curve = result.get("history", {})
    if now == TrialState.RUNNING and pause is not None:
        now = TrialState.PAUSED if pause["rests"] else now
        curve = pause["history"]
    if now == TrialState.RUNNING and look is not None and look["rests"]:
        now = TrialState.PAUSED
    return Entry(
        id=known["id"],
        number=number,
        state=now,
        stored=known["spec"],
        costs=known["costs"],
        point=known["point"],
        drawn=drawn,
        values=_by_name(objectives, {**known["costs"], **result.get("metrics", {})}, values),
        metrics=result.get("metrics", {}),
        history=rows(curve),
        failure=result.get("failure"),
        message=result.get("message"),
        traceback=result.get("traceback"),
        lives=result.get("lives", 0),
        rung=None if pause is None else pause["rung"],
        kept_bytes=0 if pause is None else pause["bytes"],
        look=Look.from_json(look),
        started=started.timestamp() if started else None,
        ended=ended.timestamp() if ended else None,
    )


def _wrong(
    number: Any, known: Mapping[str, Any], result: Any, values: list[float] | None
) -> str | None:
    """The first field that does not have the type it was written with; None where all do."""
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
    metrics = result.get("metrics", {})
    if not isinstance(metrics, dict) or not are_numbers(metrics.values()):
        return "metrics"
    if not _are_columns(result.get("history", {})):
        return "history"
    texts = (result.get(key) for key in ("failure", "message", "traceback"))
    if not all(text is None or isinstance(text, str) for text in texts):
        return "message"
    return None if type(result.get("lives", 0)) is int else "lives"


def _wrong_pause(pause: Any) -> str | None:
    """The same of what is noted of a trial that has paused."""
    if pause is None:
        return None
    if not isinstance(pause, dict) or type(pause.get("rests")) is not bool:
        return PAUSE
    numbers = [pause.get("rung"), pause.get("bytes")]
    fine = are_numbers(numbers) and _are_columns(pause.get("history"))
    return None if fine else PAUSE


def _wrong_look(look: Any) -> str | None:
    """The same of what is noted of a trial that inherited weights."""
    if look is None:
        return None
    if not isinstance(look, dict) or look.keys() != Look.__dataclass_fields__.keys():
        return LOOK
    fine = (
        isinstance(look["parent"], str)
        and is_name(look["parent"])
        and are_numbers([look["distance"], look["epochs"]])
        and type(look["rests"]) is bool
        and isinstance(look["void"], str | None)
        and _are_columns(look["history"])
    )
    return None if fine else LOOK


def _are_columns(found: Any) -> bool:
    """Whether these are learning curves as `columns` makes them."""
    return isinstance(found, dict) and all(
        isinstance(column, list) and are_numbers(v for v in column if v is not None)
        for column in found.values()
    )


def are_numbers(values: Iterable[Any]) -> bool:
    """Whether all are numbers that a float can hold."""
    return all(type(v) is float or (type(v) is int and abs(v) <= LARGEST_INTEGER) for v in values)


def _by_name(
    objectives: Sequence[str], measured: Mapping[str, float], stored: list[float] | None
) -> list[float] | None:
    """The values of the objectives, taken from costs and metrics by name where all are there.
    Optuna stores values without names, and version 0.1 mixed them up when a YAML named its
    objectives in another order."""
    if stored is None or not objectives or not all(name in measured for name in objectives):
        return stored
    return [float(measured[name]) for name in objectives]


def without_plan(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters without the levels of the plan, which the spec has as a string."""
    return {n: v for n, v in params.items() if n in PLAN_SETTINGS or not n.startswith("plan.")}


def rows(columns: Mapping[str, list[float | None]]) -> list[dict[str, float]]:
    """Learning curves as a row per epoch, from a list per metric."""
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip_longest(*columns.values())
    ]


def columns(history: Iterable[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """Learning curves as a list per metric, which is half the size of a row per epoch."""
    epochs = list(history)
    names = list(dict.fromkeys(name for row in epochs for name in row))
    found = {name: [row.get(name) for row in epochs] for name in names}
    # nan and inf, which JSON cannot express, become null.
    finite: dict[str, list[float | None]] = json.loads(
        json.dumps(found), parse_constant=lambda _text: None
    )
    return finite


def point_of(spec: TrialSpec, search: str) -> str:
    """The hash that trials share which differ in nothing but their seed."""
    return spec.model_copy(update={"seed": 0}).fingerprint(search)


def entry_of(trial: FrozenTrial, objectives: Sequence[str] = ()) -> Entry:
    """The entry of a trial of the Optuna study."""
    return stored_entry(
        trial.number,
        trial.state.name,
        trial.user_attrs,
        without_plan(trial.params),
        list(trial.values) if trial.values is not None else None,
        trial.datetime_start,
        trial.datetime_complete,
        objectives,
    )


def measured(result: Mapping[str, Any]) -> dict[str, float]:
    """All numbers that training measured. A worker lists their names under `measured`, since Ray
    adds numbers of its own to a result; a row of a history has no others."""
    names = result.get("measured", result)
    values = {name: result[name] for name in names if name in result}
    return {n: v for n, v in values.items() if isinstance(v, int | float) and type(v) is not bool}
