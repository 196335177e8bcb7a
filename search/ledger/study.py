"""The Optuna study of a search: opened or made, with a check that it belongs to this search and has
a format this version reads. Its trials are written in `ledger`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import optuna
from optuna.study import StudyDirection

from bitfront.search import submission
from bitfront.search.config.bounds import reference_point
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.environment import environment
from bitfront.search.ledger.optuna_log import silence
from bitfront.search.ledger.records import (
    FORMAT_KEY,
    LEDGER_FORMAT,
    MODES,
    arranged,
    check_ledger_format,
    objectives_in_order,
)
from bitfront.spaces.space import Space
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

silence()

DIRECTIONS = {"max": StudyDirection.MAXIMIZE, "min": StudyDirection.MINIMIZE}


def directions_of(config: SearchConfig) -> list[StudyDirection]:
    """Optuna's direction of every objective, in the order of the configuration."""
    return [DIRECTIONS[mode] for mode in config.objectives.values()]


def open_study(
    storage: BaseStorage,
    config: SearchConfig,
    space: Space,
    owner: str | None,
    notes: Mapping[str, Any],
) -> tuple[optuna.Study, list[str]]:
    """The study of this search and the order of the objectives in it. `owner` is the identity of
    the search; `notes` are written where the study does not have them yet."""
    study = optuna.create_study(
        study_name=config.name,
        storage=storage,
        directions=directions_of(config),
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(),
    )
    check_ledger_format(study.user_attrs.get(FORMAT_KEY), config.name)
    _claim(study, config.name, owner)
    try:
        study.set_user_attr(FORMAT_KEY, LEDGER_FORMAT)
        order = _settle_order(study, config)
        if "reference" not in study.user_attrs:
            reference = reference_point(config, space)
            stored = arranged(reference, list(config.objectives), order)
            study.set_user_attr("reference", stored)
        for key in notes.keys() - study.user_attrs.keys():
            study.set_user_attr(key, notes[key])
        study.set_user_attr("environment", environment())
    except BaseException:
        forget_study(storage, config.name)
        raise
    return study, order


def _claim(study: optuna.Study, name: str, owner: str | None) -> None:
    """Write the owner into a new study; an error where it has another one. Two searches of one name
    would train each other's trials."""
    if owner is None:
        return
    known = study.user_attrs.get("owner")
    if known is None:
        study.set_user_attr("owner", owner)
    elif known != owner:
        raise UserError(
            f"the database has another search called '{name}'",
            f"give this one a name of its own (--name); if it is the same one and its folder "
            f"was lost, make a folder of its name with {known} in a file 'identity'",
        )


def _settle_order(study: optuna.Study, config: SearchConfig) -> list[str]:
    """The objectives in the order of the values on disk, which is that of the configuration the
    search was begun with; the present configuration may name them in another one."""
    modes = [MODES[direction.name] for direction in study.directions]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # metric names are experimental in Optuna
        names = study.metric_names or []
        order = objectives_in_order(config.objectives, names, modes)
        if names != order:
            study.set_metric_names(order)
    return order


def forget_study(storage: BaseStorage, name: str) -> None:
    """Delete the study of a search that has no trial yet. Where the database is away it stays."""
    with suppress(Exception):
        study = optuna.load_study(study_name=name, storage=storage)
        if not study.get_trials(deepcopy=False):
            optuna.delete_study(study_name=name, storage=storage)


def check_percentages(config: SearchConfig, space: Space, entries: Iterable[Entry]) -> None:
    """Refuse a search whose limit on flops_pct would mean two things: version 0.1 took it of each
    network's own size, this one takes it of the dearest network."""
    several = any(name.startswith("model.") for name in space.overrides)
    if not several or "flops_pct" not in {*config.objectives, *config.limits}:
        return
    if any(entry.restated for entry in entries):
        raise UserError(
            f"search '{config.name}' was begun by bitfront 0.1, where flops_pct was of "
            "each network's own size; that is flops_own_pct now",
            f"continue it as it was meant: bitfront resume {config.name}{submission.back()}",
        )
