"""The examples on which a deployed file is compared with torch: those of the validation part of the
task's data where these are here, else random ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bitfront.trainables.data import (
    DATASETS,
    Arrays,
    DatasetInfo,
    pixel_statistics,
    split,
    stored_arrays,
)
from bitfront.trainables.data.datasets import normalise
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.network import an_example
from bitfront.trainables.task import Task
from bitfront.trainables.training.parts import search_data


@dataclass(frozen=True)
class Examples:
    """Inputs, and what they are."""

    x: Tensor
    what: str
    """such as: validation examples of digits"""
    why: str = ""
    """why they are random ones"""


def examples_for(task: Task, count: int, data_dir: str | None = None) -> Examples:
    """At most so many examples for networks of this task."""
    info = DATASETS.get(task.dataset)
    try:
        found = _validation(task.model_copy(update={"data_dir": data_dir or task.data_dir}), count)
        if tuple(found.shape[1:]) == tuple(info.shape):
            return Examples(found, "validation examples")
        why = "the examples of its data are no single inputs"
    except UserError as error:
        why = error.message
    return random_examples(info, count, why)


def random_examples(info: DatasetInfo, count: int, why: str = "") -> Examples:
    """So many random inputs."""
    return Examples(an_example(info, count), "random inputs", why)


def _validation(task: Task, count: int) -> Tensor:
    """The first examples of the validation part."""
    stored = stored_arrays(task.dataset, task.data_dir)
    if stored is None:  # examples that are read one by one
        read = search_data(task)[1].first(count)
        x, _ = next(iter(read.batches([torch.arange(len(read))])))
        return x if isinstance(x, Tensor) else torch.empty(0)
    arrays = {name: Arrays(*map(torch.from_numpy, pair)) for name, pair in stored.items()}
    part: Any = arrays.get("val")
    if part is None:
        whole = arrays["train"]
        if task.subset is not None and task.subset < len(whole):
            whole = whole.take(task.subset, task.split_seed)
        part = split(whole, task.val_fraction, task.split_seed)[1]
    info = DATASETS.get(task.dataset)
    mean, std = pixel_statistics(info, task.normalize)
    return normalise(part.first(count).x, replace(info, mean=mean, std=std))
