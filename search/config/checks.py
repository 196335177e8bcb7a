"""What is wrong with a search that the types of its keys cannot see: names, objectives, limits, the
space, rows of a paper. Everything is found here before anything starts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bitfront.search.config import source as yaml_source
from bitfront.search.config.schema import (
    COSTS,
    METRICS,
    MLFLOW_RUN,
    PLAN_KEYS,
    KeyProblem,
    SearchConfig,
)
from bitfront.search.ledger.folder import is_name
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.task import Task
from bitfront.trainables.tasks import KINDS

if TYPE_CHECKING:
    from bitfront.trainables.data import DatasetInfo


def check(config: SearchConfig) -> list[KeyProblem]:
    """All of it, a problem each, at its key."""
    from bitfront.search.config.space import build_space, distillations
    from bitfront.trainables.data import pixel_statistics
    from bitfront.trainables.models import MODELS

    problems: list[KeyProblem] = []

    def attempt(path: yaml_source.Path_, action: Any) -> Any:
        try:
            return action()
        except KeyProblem as problem:
            problems.append(problem)
        except UserError as error:
            problems.append(KeyProblem(path, _without_prefix(str(error), path)))
        return None

    if not is_name(config.name):
        problems.append(
            KeyProblem(("name",), f"'{config.name}': letters, digits, '-', '_' and '.', 64 at most")
        )
    dataset = attempt(("task", "dataset"), lambda: _settled_dataset(config.task))
    metrics = METRICS if dataset is None else tuple(m.name for m in config.kind.metrics)
    for group, known in (("objectives", metrics + COSTS), ("limits", COSTS)):
        for key in getattr(config, group):
            if key not in known:
                problems.append(
                    KeyProblem((group, key), f"unknown key, {did_you_mean(key, known)}")
                )
    for key, mode in config.objectives.items():
        wanted = _direction(key)
        if key in metrics + COSTS and mode != wanted:
            problems.append(
                KeyProblem(
                    ("objectives", key), f"{mode} looks for the worst networks, write {wanted}"
                )
            )
    if not config.objectives:
        problems.append(KeyProblem(("objectives",), "a search needs at least one objective"))
    elif not set(config.objectives) & set(METRICS):
        problems.append(
            KeyProblem(
                ("objectives",), f"nothing to learn: name one of {', '.join(metrics)} as well"
            )
        )
    if "val_robust_autoattack" in config.objectives and config.search.early_stopping is not None:
        problems.append(
            KeyProblem(
                ("search", "early_stopping"),
                "trials are compared midway, but autoattack is measured at their end: take "
                "val_robust_pgd20 as the objective",
            )
        )
    for key, limit in config.limits.items():
        if limit.min is None and limit.max is None:
            problems.append(KeyProblem(("limits", key), "give a min, a max or a number"))
        elif limit.min is not None and limit.max is not None and limit.min > limit.max:
            problems.append(KeyProblem(("limits", key), "min is above max"))
    problems += _paper_problems(config, metrics)
    model = attempt(("task", "model", "name"), lambda: MODELS.get(config.task.model.name))
    if model is not None:
        for key, value in config.task.model.params.items():
            attempt(("task", "model", key), partial(model.resolve, {key: value}))
    if dataset is None or model is None or problems:
        return problems
    attempt(("task", "normalize"), lambda: pixel_statistics(dataset, config.task.normalize))
    if config.task.pretrain.binary_dataset is not None:
        attempt(("task", "pretrain", "binary_dataset"), lambda: _settle_other(config.task, dataset))
    augmentation = config.task.augmentation
    single = len(dataset.shape) == 3 and dataset.kind == "classification"
    if augmentation not in ("default", "none") and not single:
        problems.append(
            KeyProblem(
                ("task", "augmentation"),
                f"{augmentation} is for single images, {dataset.name} has none",
            )
        )
    if model.kind != config.kind.networks:
        problems.append(
            KeyProblem(
                ("task", "model", "name"),
                f"{model.name} is for {model.kind}, {dataset.name} for {dataset.kind}",
            )
        )
        return problems
    if model.image and len(dataset.shape) != 3:
        problems.append(
            KeyProblem(
                ("task", "model", "name"), f"{model.name} takes images, {dataset.name} has none"
            )
        )
        return problems
    space = attempt(("space",), lambda: build_space(config))
    if space is not None:
        pretrain = config.task.pretrain
        if pretrain.checkpoint is not None and not pretrain.checkpoint.startswith(MLFLOW_RUN):
            from bitfront.trainables.training.pretraining import check_checkpoint

            tasks = space.extreme_tasks()
            attempt(("task", "pretrain", "checkpoint"), lambda: check_checkpoint(*tasks))
        for task in distillations(config, space):
            from bitfront.trainables.training.distillation import check_teacher

            attempt(("task", "loss", "distill"), partial(check_teacher, task))
        from bitfront.search.config.bounds import check_limits

        attempt(("limits",), lambda: check_limits(config, space))
    return problems


def _direction(objective: str) -> str:
    """What is better: costs are to be small, a metric says it itself."""
    if objective in COSTS:
        return "min"
    known = [m for _, kind in KINDS.items() for m in kind.metrics if m.name == objective]
    return "max" if known and known[0].maximize else "min"


def _settle_other(task: Task, dataset: DatasetInfo) -> None:
    """The dataset of the binary epochs must be like that of the task, and is counted as that is."""
    from bitfront.trainables.data import DATASETS

    assert task.pretrain.binary_dataset is not None
    name = DATASETS.settle(task.pretrain.binary_dataset, task.data_dir)
    task.pretrain.binary_dataset = name
    other = DATASETS.get(name)
    if other.kind != dataset.kind:
        raise UserError(f"{name} is for {other.kind}, {dataset.name} for {dataset.kind}")
    if other.shape != dataset.shape:
        raise UserError(f"{name} has shape {other.shape}, {dataset.name} has {dataset.shape}")


def _paper_problems(config: SearchConfig, metrics: tuple[str, ...]) -> list[KeyProblem]:
    """Rows that no trial of this search, which measures `metrics`, could answer."""
    paper = config.paper
    if paper is None:
        return []
    problems = []
    if paper.metric not in metrics:
        hint = did_you_mean(paper.metric, metrics)
        problems.append(KeyProblem(("paper", "metric"), f"'{paper.metric}' is no metric, {hint}"))
    shares = {m.name for _, kind in KINDS.items() for m in kind.metrics if m.share}
    known = [*config.space, "method", *PLAN_KEYS]
    for index, row in enumerate(paper.rows):
        path = ("paper", "rows", index)
        if paper.metric in shares and not 0 <= (row.value or 0) <= 1:
            problems.append(
                KeyProblem((*path, "value"), f"{paper.metric} is a fraction, got {row.value:g}")
            )
        for key in row.where:
            if key not in known:
                hint = did_you_mean(key, known)
                problems.append(
                    KeyProblem((*path, "where", key), f"is no key of this space, {hint}")
                )
    return problems


def _settled_dataset(task: Task) -> DatasetInfo:
    """A user's own data are counted once, here; the task then says how many classes they have."""
    from bitfront.trainables.data import DATASETS

    task.dataset = DATASETS.settle(task.dataset, task.data_dir)
    return DATASETS.get(task.dataset)


def _without_prefix(message: str, path: yaml_source.Path_) -> str:
    """Errors of the registries name their key; the line printed here names it already."""
    dotted = ".".join(str(p) for p in path)
    for prefix in (dotted, dotted.partition(".")[2], str(path[-1]), "model"):
        if message.startswith(prefix + ": "):
            return message[len(prefix) + 2 :]
    return message
