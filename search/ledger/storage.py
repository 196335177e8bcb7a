"""Optuna's database, with one statement per table for writing a trial and for reading all of them;
Optuna has several per parameter, and a plan has many parameters. `open_storage` opens it for a
driver."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
import warnings
from collections.abc import Container, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import (
    FloatDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.exceptions import OptunaError, StorageInternalError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from bitfront.search.ledger.disks import network_disk
from bitfront.search.ledger.optuna_log import silence
from bitfront.search.ledger.reader import hint_for, server_options
from bitfront.search.ledger.records import Record, drawn, query_of, read_records
from bitfront.search.urls import sqlite_path, with_driver
from bitfront.trainables.errors import UserError, first_line

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from sqlalchemy.orm import Session

silence()

OPENING_ATTEMPTS = 50


class LedgerStorage(RDBStorage):
    """Optuna's storage without its checks for other writers, since a search has one driver. A trial
    that is written again because the first attempt seemed to fail is recognized by its `id`."""

    def __init__(self, url: str, **kwargs: Any) -> None:
        # Optuna formats the URL, so braces are doubled.
        super().__init__(url.replace("{", "{{").replace("}", "}}"), **kwargs)
        self._attempted: str | None = None

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> models.TrialModel:
        if template_trial is None or template_trial.state != TrialState.RUNNING:
            return super()._get_prepared_new_trial(study_id, template_trial, session)
        name = template_trial.user_attrs["id"]
        if self._attempted == name:
            found = self._written(study_id, name, session)
            if found is not None:
                return found
        self._attempted = name
        trial = models.TrialModel(
            study_id=study_id,
            number=None,
            state=template_trial.state,
            datetime_start=template_trial.datetime_start,
        )
        session.add(trial)
        session.flush()
        for model, rows in _rows(template_trial, int(trial.trial_id)):
            if rows:
                session.execute(model.__table__.insert(), rows)
        trial.number = trial.count_past_trials(session)
        return trial

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        if states is not None:
            return super()._get_trials(study_id, states, included_trial_ids, trial_id_greater_than)
        try:
            with self.engine.connect() as connection:
                query = query_of(connection)
                return _frozen(
                    read_records(query, study_id, trial_id_greater_than, included_trial_ids)
                )
        except SQLAlchemyError as error:  # as Optuna reports it
            raise StorageInternalError("the ledger cannot be read") from error

    def _written(self, study_id: int, name: str, session: Session) -> models.TrialModel | None:
        attributes = models.TrialUserAttributeModel
        return (
            session.query(models.TrialModel)
            .join(attributes, attributes.trial_id == models.TrialModel.trial_id)
            .filter(models.TrialModel.study_id == study_id)
            .filter(attributes.key == "id", attributes.value_json == json.dumps(name))
            .one_or_none()
        )


def _frozen(records: Sequence[Record]) -> list[FrozenTrial]:
    """The trials as Optuna's objects. Equal distributions are one object in all of them."""
    distribution = cache(json_to_distribution)
    return [
        FrozenTrial(
            number=record.number,
            state=TrialState[record.state],
            value=None,
            values=record.values,
            datetime_start=record.started,
            datetime_complete=record.ended,
            params=drawn(record),
            distributions={name: distribution(kind) for name, _, kind in record.parameters},
            user_attrs={key: json.loads(text) for key, text in record.known.items()},
            system_attrs={key: json.loads(text) for key, text in record.internal.items()},
            intermediate_values={},
            trial_id=record.trial_id,
        )
        for record in records
    ]


def _rows(trial: FrozenTrial, trial_id: int) -> list[tuple[Any, list[dict[str, Any]]]]:
    """The rows of a new trial in each table, as Optuna would write them."""
    parameters = [
        {
            "trial_id": trial_id,
            "param_name": name,
            "param_value": distribution.to_internal_repr(trial.params[name]),
            "distribution_json": distribution_to_json(distribution),
        }
        for name, distribution in trial.distributions.items()
    ]
    known, internal = (
        [{"trial_id": trial_id, "key": k, "value_json": json.dumps(v)} for k, v in attrs.items()]
        for attrs in (trial.user_attrs, trial.system_attrs)
    )
    return [
        (models.TrialParamModel, parameters),
        (models.TrialUserAttributeModel, known),
        (models.TrialSystemAttributeModel, internal),
    ]


def reason_of(error: BaseException) -> str:
    """What the database said, in one line, without Optuna's words around it."""
    cause = error.__cause__ if isinstance(error, OptunaError) else None
    return first_line(cause or error)


def try_out(url: str) -> None:
    """Do what a search does to its ledger, with a study that is deleted again: make the tables
    where there are none, write a trial, end it, read it. Errors are raised."""
    storage = open_storage(url)
    name = f"bitfront-probe-{secrets.token_hex(4)}"
    study = optuna.create_study(study_name=name, storage=storage, directions=["maximize"])
    try:
        study.set_user_attr("probe", True)
        began = optuna.create_trial(
            state=TrialState.RUNNING,
            params={"x": 0.5},
            distributions={"x": FloatDistribution(0.0, 1.0)},
            user_attrs={"id": name},
        )
        trial = storage.create_new_trial(study._study_id, template_trial=began)
        storage.set_trial_user_attr(trial, "epochs", 1)
        storage.set_trial_state_values(trial, TrialState.COMPLETE, [1.0])
        (read,) = optuna.load_study(study_name=name, storage=storage).get_trials(deepcopy=False)
        if read.user_attrs.get("epochs") != 1 or read.values != [1.0]:
            raise OSError("a trial that was written is not there")
    finally:
        optuna.delete_study(study_name=name, storage=storage)


def open_storage(url: str) -> BaseStorage:
    """The storage of the ledger at `url`. SQLite is set up for one writer and many readers;
    `memory:` is gone with the process."""
    if url == "memory:":
        return optuna.storages.InMemoryStorage()
    url = with_driver(url)
    options: dict[str, Any] = {}
    path = sqlite_path(url)
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": 60}}
        if path is not None:
            options["connect_args"]["factory"] = _connection(path)
    else:
        options = server_options(url)
    for attempt in range(OPENING_ATTEMPTS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                storage = LedgerStorage(url, engine_kwargs=options)
            break
        except (SQLAlchemyError, OptunaError, ImportError, RuntimeError) as error:
            reason = reason_of(error)
            # Another process, perhaps a reader, is making the tables of a new ledger now.
            race = isinstance(error, IntegrityError) or "already exists" in reason
            if not race or attempt + 1 == OPENING_ATTEMPTS:
                raise UserError(
                    f"the ledger cannot be opened: {reason}", hint_for(reason)
                ) from None
            time.sleep(0.1)
    return optuna.storages.get_storage(storage)


def _connection(path: Path) -> type[sqlite3.Connection]:
    """The connections to a SQLite file, also the first one: its tables are made without waiting for
    the disk after each of them."""
    # A write-ahead journal lets many read while one writes, but needs memory shared by all of them,
    # which a network disk does not have.
    there = network_disk(path.parent) is not None
    journal, synchronous = ("DELETE", "FULL") if there else ("WAL", "NORMAL")

    class Connection(sqlite3.Connection):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.execute(f"PRAGMA journal_mode={journal}")
            self.execute(f"PRAGMA synchronous={synchronous}")

    return Connection
