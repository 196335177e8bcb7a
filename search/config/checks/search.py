"""Checks of a configuration by itself: the name of the search, its objectives, limits and the rows
of a paper. The task is checked in `checks.task`, the space in `checks.space`."""

from __future__ import annotations

from contextlib import suppress

from bitfront.search.config.errors import KeyPath, Problems
from bitfront.search.config.known import (
    METRICS,
    attacks,
    direction,
    foresees,
    measured_at_end,
    metrics_of,
    printable_metrics,
    shares,
)
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.folder import HOME_FILES, is_name
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.own_code import shown
from bitfront.trainables.tasks import Kind


def check_config(config: SearchConfig, problems: Problems) -> None:
    """Note in `problems` everything that is wrong with the configuration by itself."""
    _check_name(config.name, problems)
    kind: Kind | None = None
    with suppress(UserError):  # an unknown dataset is reported with the task
        kind = config.kind
    metrics = METRICS if kind is None else metrics_of(kind)
    _check_objectives(config, kind, metrics, problems)
    _check_limits(config, metrics, problems)
    _check_until(config, problems)
    _check_pause(config, problems)
    _check_inherit(config, problems)
    _check_paper(config, metrics if kind is None else printable_metrics(kind), problems)


def _check_name(name: str, problems: Problems) -> None:
    if not is_name(name):
        problems.add(("name",), f"'{name}': letters, digits, '-', '_' and '.', 64 at most")
    elif name in HOME_FILES:
        message = f"'{name}': bitfront keeps something else under this name beside the searches"
        problems.add(("name",), message)


def _check_objectives(
    config: SearchConfig, kind: Kind | None, metrics: tuple[str, ...], problems: Problems
) -> None:
    given, costs = config.objectives, config.cost_names
    unknown = [key for key in given if key not in (*metrics, *costs)]
    for key in unknown:
        hint = did_you_mean(key, (*metrics, *costs))
        problems.add(("objectives", key), f"unknown key, {hint}")
    for key, mode in given.items():
        wanted = direction(key, kind)
        if key not in unknown and mode != wanted:
            message = f"{mode} looks for the worst networks, write {wanted}"
            problems.add(("objectives", key), message)
    if not given:
        problems.add(("objectives",), "a search needs at least one objective")
    elif not unknown and not set(given) & set(metrics):
        message = f"nothing to learn: name one of {', '.join(metrics)} as well"
        problems.add(("objectives",), message)
    late = sorted(set(given) & measured_at_end())
    if late and config.search.rungs:
        attack, other = attacks()[late[0]], [m for m in attacks() if m not in measured_at_end()]
        problems.add(
            ("search", "early_stopping" if config.search.early_stopping else "pause"),
            f"trials are compared midway, but {attack} is measured at their end: take "
            f"{', '.join(other[:-1])} or {other[-1]} as the objective",
        )


def _check_limits(config: SearchConfig, metrics: tuple[str, ...], problems: Problems) -> None:
    known = (*metrics, *config.cost_names)
    for key, limit in config.limits.items():
        path = ("limits", key)
        if key not in known:
            problems.add(path, f"unknown key, {did_you_mean(key, known)}")
        elif key in shares():
            for side, value in (("min", limit.min), ("max", limit.max)):
                if value is not None:
                    _check_printed((*path, side), key, value, problems)
        if limit.min is None and limit.max is None:
            problems.add(path, "give a min, a max or a number")
        elif limit.min is not None and limit.max is not None and limit.min > limit.max:
            problems.add(path, "min is above max")


def _check_until(config: SearchConfig, problems: Problems) -> None:
    search, path = config.search, ("search", "until")
    if search.until is None:
        return
    if not foresees(search.sampler):
        problems.add(path, f"{shown(search.sampler)} cannot say what is left to gain: take hours")
    elif len(config.objectives) > 2:
        problems.add(path, "what is left to gain is known of one metric and one cost: take hours")


def _check_pause(config: SearchConfig, problems: Problems) -> None:
    search, path = config.search, ("search", "pause")
    if search.pause is None:
        return
    if search.early_stopping is not None:
        problems.add(path, "trials rest at rungs or are stopped there: take one of the two")
    if not foresees(search.sampler):
        problems.add(path, f"{shown(search.sampler)} cannot say what trials promise")


def _check_inherit(config: SearchConfig, problems: Problems) -> None:
    search, path, task = config.search, ("search", "inherit"), config.task
    if search.inherit is None:
        return
    if search.early_stopping is not None or search.pause is not None:
        problems.add(path, "looks and rungs are two ways to save epochs: take one of them")
    if not foresees(search.sampler):
        problems.add(path, f"{shown(search.sampler)} cannot say what looks promise")
    if task.pretrain.active:
        problems.add(path, "trials start from task.pretrain or from each other: take one of them")
    if task.attack.train != "none":
        problems.add(path, "training against attacks cannot inherit what its attacks have learned")
    if task.epochs < 2:
        problems.add(path, "a look is shorter than a trial: give task.epochs 2 or more")
    with suppress(UserError):  # an unknown dataset is reported with the task
        if DATASETS.get(task.dataset).tasks > 1:
            problems.add(path, "several tasks in a row are learned from the first one on")


def _check_paper(config: SearchConfig, metrics: tuple[str, ...], problems: Problems) -> None:
    """Note what is wrong with the printed numbers of a paper, for a search whose networks have
    `metrics`. The settings of the rows are checked in `checks.paper`."""
    paper = config.paper
    if paper is None:
        return
    if paper.metric not in metrics:
        hint = did_you_mean(paper.metric, metrics)
        problems.add(("paper", "metric"), f"'{paper.metric}' is no metric, {hint}")
    elif paper.metric.startswith("test_"):
        message = "trials have no test set: name it in `values`, which final trainings answer"
        problems.add(("paper", "metric"), message)
    labels = [row.label for row in paper.rows]
    for index, row in enumerate(paper.rows):
        path = ("paper", "rows", index)
        if row.label in labels[:index]:
            problems.add((*path, "label"), f"'{row.label}' is there twice: rows are run by label")
        if row.value is not None:
            _check_printed((*path, "value"), paper.metric, row.value, problems)
        for key, value in row.values.items():
            if key not in metrics:
                hint = did_you_mean(key, metrics)
                problems.add((*path, "values", key), f"is no metric, {hint}")
            elif key == paper.metric:
                problems.add((*path, "values", key), "is paper.metric: write it as `value`")
            else:
                _check_printed((*path, "values", key), key, value, problems)
        for key in row.spreads.keys() - row.values.keys():
            problems.add((*path, "spreads", key), "has no number in `values`")


def _check_printed(path: KeyPath, metric: str, value: float, problems: Problems) -> None:
    if metric in shares() and not 0 <= value <= 1:
        problems.add(path, f"{metric} is a fraction, got {value:g}")
