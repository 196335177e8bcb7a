"""Checks of the task of a search: a model that does not exist, a parameter it does not take, data
that are not for it. No network is built here."""

from __future__ import annotations

from bitfront.search.config.errors import KeyPath, Problems
from bitfront.trainables.data import DATASETS, DatasetInfo, pixel_statistics
from bitfront.trainables.errors import UserError
from bitfront.trainables.models import MODELS
from bitfront.trainables.task import Task
from bitfront.trainables.tasks import kind_of

MODEL: KeyPath = ("task", "model", "name")


def check_model(task: Task, problems: Problems) -> None:
    """Note a model that does not exist, and parameters that it does not take."""
    with problems.at(*MODEL):
        model = MODELS.get(task.model.name)
        for key, value in task.model.params.items():
            with problems.at("task", "model", key):
                model.resolve({key: value})


def check_data(task: Task, problems: Problems) -> None:
    """Note data that do not have the form that the model, the augmentation and pretraining need.
    For a task whose dataset and model are known."""
    dataset, model = DATASETS.get(task.dataset), MODELS.get(task.model.name)
    with problems.at("task", "normalize"):
        pixel_statistics(dataset, task.normalize)
    if task.pretrain.binary_dataset is not None:
        with problems.at("task", "pretrain", "binary_dataset"):
            _check_alike(DATASETS.get(task.pretrain.binary_dataset), dataset)
    augmentation = task.augmentation
    single = len(dataset.shape) == 3 and dataset.kind == "classification"
    if augmentation not in ("default", "none") and not single:
        message = f"{augmentation} is for single images, {dataset.name} has none"
        problems.add(("task", "augmentation"), message)
    if dataset.integers and (task.attack.active or task.attack.evaluate):
        problems.add(("task", "attack"), "attacks change pixels, and examples here are integers")
    if model.kind != kind_of(task.dataset).networks:
        message = f"{model.name} is for {model.kind}, {dataset.name} for {dataset.kind}"
        problems.add(MODEL, message)
    elif model.image and len(dataset.shape) != 3:
        problems.add(MODEL, f"{model.name} takes images, {dataset.name} has none")


def _check_alike(other: DatasetInfo, dataset: DatasetInfo) -> None:
    """Raise UserError unless the dataset of the binary epochs of pretraining has examples like
    those of the task."""
    if other.kind != dataset.kind:
        raise UserError(f"{other.name} is for {other.kind}, {dataset.name} for {dataset.kind}")
    if other.shape != dataset.shape:
        raise UserError(f"{other.name} has shape {other.shape}, {dataset.name} has {dataset.shape}")
