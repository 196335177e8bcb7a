"""Optuna's database, with one statement a table for writing a trial and for reading all of them,
where Optuna has several for every parameter: a plan has many."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState

from bitfront.search.ledger.records import Record, drawn, query_of, read_records

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class LedgerStorage(RDBStorage):
    """Written by one driver, which knows that its parameters fit together. A trial is known by its
    `id`: an attempt to write it that was cut off may have come through, and is looked for."""

    def __init__(self, url: str, **kwargs: Any) -> None:
        # Optuna fills in what stands in braces.
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
        except sqlalchemy.exc.SQLAlchemyError as error:  # told as Optuna does
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
    """The trials, as Optuna builds them. A distribution is the same object in all of them."""
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
    """What a new trial has in each table, as Optuna would write it."""
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
