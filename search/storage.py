"""Optuna's database, with one statement a table for writing a trial and for reading all of them,
where Optuna has several for every parameter: a plan has many."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import TYPE_CHECKING, Any

import sqlalchemy
from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

# Databases take so many values in one statement.
MOST_OPEN = 500


class LedgerStorage(RDBStorage):
    """Written by one driver, which knows that its parameters fit together. A trial is known by its
    `id`: an attempt to write it that was cut off may have come through, and is looked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
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
        if states is not None or len(included_trial_ids) > MOST_OPEN:
            return super()._get_trials(study_id, states, included_trial_ids, trial_id_greater_than)
        trials = models.TrialModel.__table__
        wanted = sqlalchemy.and_(
            trials.c.study_id == study_id,
            sqlalchemy.or_(
                trials.c.trial_id > trial_id_greater_than,
                trials.c.trial_id.in_(included_trial_ids),
            ),
        )
        try:
            with self.engine.connect() as connection:
                return _read(connection, wanted)
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


def _read(connection: Connection, wanted: sqlalchemy.ColumnElement[bool]) -> list[FrozenTrial]:
    """The trials, as Optuna builds them. A distribution is the same object in all of them."""
    trials = models.TrialModel.__table__
    found = connection.execute(trials.select().where(wanted).order_by(trials.c.trial_id)).all()

    def rows_of(model: Any, *columns: str) -> dict[int, list[Any]]:
        table = model.__table__
        chosen = sqlalchemy.select(table.c.trial_id, *(table.c[name] for name in columns))
        by_trial: dict[int, list[Any]] = {}
        key = next(iter(table.primary_key.columns))
        joined = table.join(trials, table.c.trial_id == trials.c.trial_id)
        query = chosen.select_from(joined).where(wanted).order_by(key)
        for trial_id, *values in connection.execute(query).all():
            by_trial.setdefault(trial_id, []).append(values)
        return by_trial

    parameters = rows_of(models.TrialParamModel, "param_name", "param_value", "distribution_json")
    values = rows_of(models.TrialValueModel, "objective", "value", "value_type")
    known = rows_of(models.TrialUserAttributeModel, "key", "value_json")
    internal = rows_of(models.TrialSystemAttributeModel, "key", "value_json")
    distributions: dict[str, BaseDistribution] = {}

    def distribution(text: str) -> BaseDistribution:
        if text not in distributions:
            distributions[text] = json_to_distribution(text)
        return distributions[text]

    built = []
    for row in found:
        drawn = parameters.get(row.trial_id, [])
        told = {
            objective: models.TrialValueModel.stored_repr_to_value(value, kind)
            for objective, value, kind in values.get(row.trial_id, [])
        }
        built.append(
            FrozenTrial(
                number=row.number,
                state=row.state,
                value=None,
                values=[told[i] for i in sorted(told)] or None,
                datetime_start=row.datetime_start,
                datetime_complete=row.datetime_complete,
                params={n: distribution(d).to_external_repr(v) for n, v, d in drawn},
                distributions={n: distribution(d) for n, _, d in drawn},
                user_attrs={k: json.loads(v) for k, v in known.get(row.trial_id, [])},
                system_attrs={k: json.loads(v) for k, v in internal.get(row.trial_id, [])},
                intermediate_values={},
                trial_id=row.trial_id,
            )
        )
    return built


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
