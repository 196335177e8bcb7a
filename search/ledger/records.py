"""Optuna's tables, read with one statement per table; JSON in them stays text until it is needed.
Optuna and SQLAlchemy are not imported: that takes longer than a short command."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from bitfront.search.ledger.entry import PLAN_SETTINGS
from bitfront.trainables.errors import UserError
from bitfront.trainables.text_files import check_format

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

# Runs a statement with `:named` values and returns its rows.
Query = Callable[[str, Mapping[str, Any]], Iterable[Sequence[Any]]]

# Tables of what belongs to a trial: name, key (by which rows are in the order of writing), columns.
PARAMETERS = ("trial_params", "param_id", ["param_name", "param_value", "distribution_json"])
VALUES = ("trial_values", "trial_value_id", ["objective", "value", "value_type"])
KNOWN = ("trial_user_attributes", "trial_user_attribute_id", ["key", "value_json"])
INTERNAL = ("trial_system_attributes", "trial_system_attribute_id", ["key", "value_json"])
NOT_OF_PLANS = f"AND (param_name NOT LIKE 'plan.%' OR param_name IN {PLAN_SETTINGS})"
# How many ids a statement may list.
MOST_OPEN = 500
# The user attribute of the study with the format of the ledger; version 0.1 wrote none.
FORMAT_KEY = "format"
LEDGER_FORMAT = 1
# Optuna's attribute with the names of objectives, and its words for their directions.
METRIC_NAMES = "study:metric_names"
MODES = {"MAXIMIZE": "max", "MINIMIZE": "min"}
INFINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf}


class Record(NamedTuple):
    """The rows of one trial."""

    trial_id: int
    number: int
    state: str
    started: datetime | None
    ended: datetime | None
    numbered: list[tuple[int, float]]
    """values, each with the number of its objective"""
    parameters: list[tuple[str, float, str]]
    """name, the number that stands for the value, JSON of its distribution"""
    known: dict[str, str]
    internal: dict[str, str]

    @property
    def values(self) -> list[float] | None:
        """The values in the order of the objectives; None where there are none."""
        return [value for _, value in sorted(self.numbered)] or None


def query_of(connection: Connection) -> Query:
    """A function that runs statements on a connection of SQLAlchemy."""
    from sqlalchemy import text

    return lambda statement, values: connection.execute(text(statement), values)


def study_id(query: Query, name: str) -> int | None:
    """The key of the study of a search; None where there is none."""
    found = query("SELECT study_id FROM studies WHERE study_name = :name", {"name": name})
    return next((row[0] for row in found), None)


def study_notes(query: Query, study: int) -> dict[str, Any]:
    """The user attributes of a study."""
    statement = (
        "SELECT attributes.key, attributes.value_json FROM study_user_attributes AS attributes "
        "WHERE attributes.study_id = :study"
    )
    return {key: json.loads(text) for key, text in query(statement, {"study": study})}


def check_ledger_format(found: Any, name: str) -> None:
    """Raise UserError where a ledger is of a later format than this version reads."""
    check_format(found, LEDGER_FORMAT, f"the ledger of '{name}'")


def study_objectives(query: Query, study: int) -> tuple[list[str], list[str]]:
    """The names of the objectives (none where they are not written yet), and "max" or "min" for
    each value of a trial."""
    named = query(
        "SELECT attributes.value_json FROM study_system_attributes AS attributes "
        "WHERE attributes.study_id = :study AND attributes.key = :key",
        {"study": study, "key": METRIC_NAMES},
    )
    names: list[str] = next((json.loads(row[0]) for row in named), [])
    found = query(
        "SELECT objective, direction FROM study_directions WHERE study_id = :study",
        {"study": study},
    )
    return names, [MODES[direction] for _, direction in sorted(map(tuple, found))]


def objectives_in_order(
    wanted: Mapping[str, str], names: Sequence[str], modes: Sequence[str]
) -> list[str]:
    """The objective of each value of a trial. `names` are in the ledger, `modes` ("max" or "min")
    are those it was begun with, `wanted` are the modes by name of the configuration. Where names
    and modes contradict each other the modes count: version 0.1 overwrote the names when a YAML had
    its objectives in another order."""
    if not names:
        names = list(wanted)
    if sorted(names) != sorted(wanted) or sorted(modes) != sorted(wanted.values()):
        raise UserError(
            f"the ledger holds other objectives ({', '.join(names)}) than the search wants "
            f"({', '.join(wanted)})",
            "its search.yaml was changed by hand, or the ledger is another search's",
        )
    left = list(names)
    ordered = []
    for mode in modes:
        ordered.append(next(name for name in left if wanted[name] == mode))
        left.remove(ordered[-1])
    return ordered


def arranged(values: Sequence[float], order: Sequence[str], wanted: Iterable[str]) -> list[float]:
    """The values, given in the order `order` of objectives, in the order `wanted`."""
    if len(values) != len(order):
        raise UserError(f"the ledger is damaged: {len(values)} values for {', '.join(order)}")
    named = dict(zip(order, values, strict=True))
    return [named[name] for name in wanted]


def read_records(
    query: Query, study: int, after: int, again: Collection[int], plans: bool = True
) -> list[Record]:
    """The trials of a study with ids greater than `after`, and those in `again`, by id. Without
    `plans` the levels of plans are left out: there is a row per layer, and the spec has them
    too."""
    wanted = f"trials.study_id = :study AND {_wanted(after, again)}"
    # Trials are read first: parameters and attributes are written before a trial's row, results
    # before its end. If a driver writes between two statements, a trial may look as it was before
    # that write, but never incomplete.
    trials = query(
        "SELECT trial_id, number, state, datetime_start, datetime_complete FROM trials "
        f"WHERE {wanted} ORDER BY trial_id",
        {"study": study},
    )
    found = {
        row[0]: Record(row[0], row[1], row[2], _when(row[3]), _when(row[4]), [], [], {}, {})
        for row in trials
    }

    def of_trials(source: tuple[str, str, list[str]], chosen: str = "") -> Iterable[Sequence[Any]]:
        table, key, columns = source
        # With the table, since `key` alone is a reserved word in some databases.
        named = ", ".join(f"{table}.{column}" for column in ("trial_id", *columns))
        statement = (
            f"SELECT {named} FROM {table} JOIN trials ON trials.trial_id = {table}.trial_id "
            f"WHERE {wanted} {chosen} ORDER BY {table}.{key}"
        )
        return query(statement, {"study": study})

    for trial, *parameter in of_trials(PARAMETERS, "" if plans else NOT_OF_PLANS):
        if trial in found:
            found[trial].parameters.append(tuple(parameter))
    for trial, objective, value, kind in of_trials(VALUES):
        if trial in found:
            found[trial].numbered.append((objective, INFINITE.get(kind, value)))
    for trial, key, text in of_trials(KNOWN):
        if trial in found:
            found[trial].known[key] = text
    for trial, key, text in of_trials(INTERNAL) if plans else ():
        if trial in found:
            found[trial].internal[key] = text
    return list(found.values())


def _wanted(after: int, again: Collection[int]) -> str:
    if len(again) > MOST_OPEN:
        return f"trials.trial_id >= {min(*again, after + 1)}"
    listed = f" OR trials.trial_id IN ({', '.join(map(str, again))})" if again else ""
    return f"(trials.trial_id > {after}{listed})"


def _when(stored: datetime | str | None) -> datetime | None:
    """The time; SQLite stores it as text."""
    return datetime.fromisoformat(stored) if isinstance(stored, str) else stored


@cache
def _meaning(distribution: str) -> Callable[[float], Any]:
    """A function from the stored number to the value, for the JSON of a distribution."""
    parsed = json.loads(distribution)
    if parsed["name"] == "CategoricalDistribution":
        choices = parsed["attributes"]["choices"]
        return lambda number: choices[int(number)]
    return int if parsed["name"] == "IntDistribution" else float


def drawn(record: Record) -> dict[str, Any]:
    """The parameters of a trial by name, from the numbers that Optuna stores for them."""
    return {name: _meaning(kind)(number) for name, number, kind in record.parameters}
