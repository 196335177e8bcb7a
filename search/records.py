"""Optuna's tables as they are read here: all trials with one statement a table, and what is JSON in
them left as text for those who need it. No Optuna: its import takes longer than a short answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import ColumnElement, DateTime, column, table
from sqlalchemy.engine import Connection

from search.entry import PLAN_SETTINGS

STUDIES = table("studies", column("study_id"), column("study_name"))
NOTES = table("study_user_attributes", column("study_id"), column("key"), column("value_json"))
TRIALS = table(
    "trials",
    column("trial_id"),
    column("study_id"),
    column("number"),
    column("state"),
    column("datetime_start", DateTime),
    column("datetime_complete", DateTime),
)
PARAMETERS = table(
    "trial_params",
    column("param_id"),
    column("trial_id"),
    column("param_name"),
    column("param_value"),
    column("distribution_json"),
)
VALUES = table(
    "trial_values",
    column("trial_value_id"),
    column("trial_id"),
    column("objective"),
    column("value"),
    column("value_type"),
)
KNOWN = table(
    "trial_user_attributes",
    column("trial_user_attribute_id"),
    column("trial_id"),
    column("key"),
    column("value_json"),
)
INTERNAL = table(
    "trial_system_attributes",
    column("trial_system_attribute_id"),
    column("trial_id"),
    column("key"),
    column("value_json"),
)
# Databases take so many values in one statement.
MOST_OPEN = 500
INFINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf}


class Record(NamedTuple):
    """One trial."""

    trial_id: int
    number: int
    state: str
    started: datetime | None
    ended: datetime | None
    values: list[float] | None
    parameters: list[tuple[str, float, str]]
    """name, the number that stands for the value, JSON of its distribution"""
    known: dict[str, str]
    internal: dict[str, str]


def study_id(connection: Connection, name: str) -> int | None:
    query = sqlalchemy.select(STUDIES.c.study_id).where(STUDIES.c.study_name == name)
    return connection.execute(query).scalar()


def study_notes(connection: Connection, study: int) -> dict[str, Any]:
    query = sqlalchemy.select(NOTES.c.key, NOTES.c.value_json)
    found = connection.execute(query.where(NOTES.c.study_id == study))
    return {key: json.loads(text) for key, text in found}


def read_records(
    connection: Connection, study: int, after: int, again: Iterable[int], plans: bool = True
) -> list[Record]:
    """The trials of a study with ids greater than `after`, and those of `again`, in order. Without
    `plans` the levels of plans are left out: every layer has a row, and the spec has them too."""
    again = set(again)
    wanted = TRIALS.c.trial_id > after
    if len(again) > MOST_OPEN:
        wanted = TRIALS.c.trial_id >= min(*again, after + 1)
    elif again:
        wanted = wanted | TRIALS.c.trial_id.in_(again)
    wanted = wanted & (TRIALS.c.study_id == study)
    name = PARAMETERS.c.param_name
    chosen = [] if plans else [name.not_like("plan.%") | name.in_(PLAN_SETTINGS)]
    parameters = _by_trial(connection, PARAMETERS, wanted, chosen)
    values = _by_trial(connection, VALUES, wanted)
    known = _by_trial(connection, KNOWN, wanted)
    internal = _by_trial(connection, INTERNAL, wanted) if plans else {}
    trials = sqlalchemy.select(
        TRIALS.c.trial_id,
        TRIALS.c.number,
        TRIALS.c.state,
        TRIALS.c.datetime_start,
        TRIALS.c.datetime_complete,
    )
    found = connection.execute(trials.where(wanted).order_by(TRIALS.c.trial_id))
    return [
        Record(
            *row,
            values=_values(values.get(row[0], ())),
            parameters=parameters.get(row[0], []),
            known=dict(known.get(row[0], ())),
            internal=dict(internal.get(row[0], ())),
        )
        for row in found
    ]


def _by_trial(
    connection: Connection,
    source: sqlalchemy.TableClause,
    wanted: ColumnElement[bool],
    chosen: Sequence[ColumnElement[bool]] = (),
) -> dict[int, list[Any]]:
    key, trial_id, *columns = source.c
    joined = source.join(TRIALS, trial_id == TRIALS.c.trial_id)
    query = sqlalchemy.select(trial_id, *columns).select_from(joined)
    found: dict[int, list[Any]] = {}
    for row in connection.execute(query.where(wanted, *chosen).order_by(key)):
        found.setdefault(row[0], []).append(row[1:])
    return found


def _values(rows: Sequence[tuple[int, float, str]]) -> list[float] | None:
    """By objective. A database has no infinity."""
    return [INFINITE.get(kind, value) for _, value, kind in sorted(rows)] or None


@cache
def _meaning(distribution: str) -> Callable[[float], Any]:
    told = json.loads(distribution)
    if told["name"] == "CategoricalDistribution":
        choices = told["attributes"]["choices"]
        return lambda number: choices[int(number)]
    return int if told["name"] == "IntDistribution" else float


def drawn(record: Record) -> dict[str, Any]:
    """The values that the numbers of a trial's parameters stand for."""
    return {name: _meaning(kind)(number) for name, number, kind in record.parameters}
