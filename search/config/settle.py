"""The configuration with everything written out that trials depend on: whole paths, datasets with
their classes counted, attacks that an objective needs, the settings of a shared pretraining, hashes
of files. Every function returns a new configuration; the one it is given stays as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitfront.search.config.errors import Problems
from bitfront.search.config.known import attacks, default_objectives
from bitfront.search.config.schema import SearchConfig
from bitfront.search.urls import canonical
from bitfront.spaces.ready_made import teacher_file
from bitfront.trainables.data import DATASETS
from bitfront.trainables.data.own.declaration import is_settled, with_arguments
from bitfront.trainables.errors import UserError
from bitfront.trainables.settings import ModelSpec
from bitfront.trainables.task import Task
from bitfront.trainables.text_files import whole_path

# A checkpoint that is an artifact of an MLflow run begins so.
MLFLOW_RUN = "runs:/"
# A checkpoint in the data directory begins so, wherever that is.
IN_DATA = "data:"
# Keys of `space` that make trials share a pretraining.
PRETRAINING = {"pretrain.epochs", "pretrain.binary_epochs"}


def is_file(checkpoint: str | None) -> bool:
    """Whether there is a checkpoint and it is a file here: not an artifact of an MLflow run, nor
    one of a data directory that is not here."""
    return checkpoint is not None and not checkpoint.startswith((MLFLOW_RUN, IN_DATA))


def settled(config: SearchConfig, problems: Problems) -> SearchConfig:
    """The configuration as trials get it; a part that cannot be settled is noted in `problems` and
    stays as it is."""
    task = _with_whole_paths(config.task, problems)
    task = _with_counted_data(task, config.space, problems)
    config = _with_objectives(config, task)
    task = _with_measured_attacks(task, config)
    task = _with_settled_activations(task)
    pretrain = task.pretrain
    if pretrain.epochs or pretrain.binary_epochs or PRETRAINING & set(config.space):
        task = task.with_settled_pretraining()
    uri, storage = config.tracking.uri, config.storage
    tracking = config.tracking.model_copy(update={"uri": uri and canonical(uri)})
    places = {"tracking": tracking, "storage": storage and canonical(storage)}
    return config.model_copy(update={"task": task, **places})


def _with_objectives(config: SearchConfig, task: Task) -> SearchConfig:
    """The configuration with the default objectives, where they depend on data that had to be
    looked at first."""
    if config.objectives or not DATASETS.is_unseen(config.task.dataset):
        return config
    return config.model_copy(update={"objectives": default_objectives(task.dataset)})


def _with_whole_paths(task: Task, problems: Problems) -> Task:
    """The task with absolute paths of its files: workers run in folders of their own."""
    pretrain, distill = task.pretrain, task.loss.distill
    pretrain = pretrain.model_copy(update={"checkpoint": _found_in_data(task)})
    if is_file(pretrain.checkpoint):
        with problems.at("task", "pretrain", "checkpoint"):
            path = whole_path(str(pretrain.checkpoint))
            pretrain = pretrain.model_copy(update={"checkpoint": str(path)})
    if distill.teacher_file is not None:
        with problems.at("task", "loss", "distill", "teacher"):
            path = teacher_file(distill.teacher_file)
            distill = distill.model_copy(update={"teacher": str(path)})
    loss = task.loss.model_copy(update={"distill": distill})
    return task.model_copy(update={"pretrain": pretrain, "loss": loss})


def _found_in_data(task: Task) -> str | None:
    """The checkpoint; one of the data directory as its path, where it is there. A search can be
    looked at and rehearsed without."""
    checkpoint = task.pretrain.checkpoint
    chosen = task.data_dir or os.environ.get("BITFRONT_DATA")
    if checkpoint is None or not checkpoint.startswith(IN_DATA) or not chosen:
        return checkpoint
    path = whole_path(chosen) / checkpoint.removeprefix(IN_DATA)
    return str(path) if path.is_file() else checkpoint


def _with_counted_data(task: Task, space: Mapping[str, Any], problems: Problems) -> Task:
    """The task with the number of classes in the names of the user's own datasets, counted here
    once."""
    model = task.model.model_copy(update=_drawn(space))
    with problems.at("task", "dataset"):
        dataset = _counted(_with_arguments(task), task.data_dir, model)
        task = task.model_copy(update={"dataset": dataset})
    other = task.pretrain.binary_dataset
    if other is not None:
        with problems.at("task", "pretrain", "binary_dataset"):
            counted = _counted(other, task.data_dir, model)
            pretrain = task.pretrain.model_copy(update={"binary_dataset": counted})
            task = task.model_copy(update={"pretrain": pretrain})
    return task


def _with_arguments(task: Task) -> str:
    """The dataset with the arguments of `task.data`, which only data of the user's own have."""
    if not task.data or is_settled(task.dataset):
        return task.dataset
    if not DATASETS.runs_code(task.dataset):
        raise UserError(f"{task.dataset} takes no arguments: task.data is for data of your own")
    return with_arguments(task.dataset, task.data)


def _counted(dataset: str, data_dir: str | None, model: ModelSpec) -> str:
    """The name of a dataset that exists, with its classes counted where it is the user's own."""
    name = DATASETS.settle(dataset, data_dir)
    if DATASETS.get(name).integers and DATASETS.is_unseen(dataset):
        from bitfront.trainables.models.building import suited

        return suited(name, model.name, model.params)
    return DATASETS.get(name).name


def _drawn(space: Mapping[str, Any]) -> dict[str, Any]:
    """A value of every argument of the model that the space draws, where it can be told."""
    found = {}
    for key, raw in space.items():
        part, _, name = key.partition(".")
        values = next(iter(raw.values()), None) if isinstance(raw, Mapping) else raw
        if part == "model" and isinstance(values, list) and values:
            found[name] = values[0]
    return found


def _with_measured_attacks(task: Task, config: SearchConfig) -> Task:
    """The task that also measures robust accuracy under the attacks that an objective, a limit or
    the numbers of a paper need."""
    names = {*config.objectives, *config.limits}
    if config.paper is not None:
        names |= {config.paper.metric, *(key for row in config.paper.rows for key in row.values)}
    measured = task.attack.evaluate
    missing = [a for metric, a in attacks().items() if metric in names and a not in measured]
    attack = task.attack.model_copy(update={"evaluate": [*measured, *missing]})
    return task.model_copy(update={"attack": attack})


def _with_settled_activations(task: Task) -> Task:
    """The task that says what happens to its activations; `auto` where the YAML says nothing. A
    search that is read back says it always: those of version 0.1 keep their activations."""
    said = task.activations if "activations" in task.model_fields_set else "auto"
    task = task.model_copy(update={"activations": said})
    return task.model_copy(update={"activations": task.settled_activations})


def with_hashes(config: SearchConfig) -> SearchConfig:
    """The configuration with the sha256 of a checkpoint and of a teacher, so that another file is
    noticed."""
    task = config.task
    pretrain, distill = task.pretrain, task.loss.distill
    files = {"checkpoint": pretrain.checkpoint, "teacher": distill.teacher_file}
    if not any(map(is_file, files.values())):
        return config
    from bitfront.trainables.training.checkpoint_files import file_digest

    found = {name: file_digest(Path(str(file))) for name, file in files.items() if is_file(file)}
    if "checkpoint" in found:
        pretrain = pretrain.model_copy(update={"sha256": found["checkpoint"]})
    if "teacher" in found:
        distill = distill.model_copy(update={"sha256": found["teacher"]})
    loss = task.loss.model_copy(update={"distill": distill})
    task = task.model_copy(update={"pretrain": pretrain, "loss": loss})
    return config.model_copy(update={"task": task})
