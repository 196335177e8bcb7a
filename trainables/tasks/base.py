"""What a kind of task is: its loss, its evaluation, and the metrics a search may optimize."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables.data import DATASETS, DatasetInfo
from bitfront.trainables.errors import UnknownNameError, did_you_mean
from bitfront.trainables.metrics import Metric
from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.task import Task


class Kind(ABC):
    """A kind of task. A batch is (x, y), with types that depend on the dataset; the network is
    called with x."""

    name: ClassVar[str]
    metrics: tuple[Metric, ...]
    """the first one is the quality a search optimizes unless it says otherwise"""
    networks: ClassVar[str] = "classification"
    """the `kind` of the models it takes; models for classification have one output per class"""
    aliases: ClassVar[tuple[str, ...]] = ()
    """former names"""

    def of(self, info: DatasetInfo) -> Kind:
        """The kind of the task on this dataset, where data of the user's own change it."""
        return self

    @property
    def quality(self) -> Metric:
        return self.metrics[0]

    @property
    def reported(self) -> tuple[Metric, ...]:
        """Further numbers that papers print and no search optimizes: quality on the training part
        (`task.measure_train`), quality of the mean over draws of the weights, and metrics on the
        test set, which final trainings measure."""
        q = self.quality
        drawn = f"{q.label} of the mean over draws"
        return (
            replace(q, name=f"train_{q.bare}", label=f"{q.label} on the training part"),
            replace(q, name=f"{q.name}_mean", label=drawn),
            replace(q, name=f"train_{q.bare}_mean", label=f"{drawn} on the training part"),
            *(replace(m, name=f"test_{m.bare}", label=f"test {m.label}") for m in self.metrics),
            replace(q, name=f"test_{q.bare}_draws", label=f"test {drawn}"),
        )

    def metric(self, name: str) -> Metric:
        """The metric of that name, one that is only reported too."""
        known = (*self.metrics, *self.reported)
        for metric in known:
            if metric.name == name:
                return metric
        hint = did_you_mean(name, [metric.name for metric in known])
        raise UnknownNameError(f"unknown metric '{name}', {hint}")

    @abstractmethod
    def chance(self, metric: str, info: DatasetInfo) -> float:
        """The metric of a network that has learned nothing: the reference point of hypervolumes."""

    @abstractmethod
    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        """The loss of one batch."""

    def combine(self, outputs: Tensor, average: str) -> Tensor:
        """One output from those of several draws of the weights, stacked in the first dimension."""
        return outputs.mean(0)

    @abstractmethod
    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        """The metrics of the network in evaluation mode, by name; `val_loss` is always among
        them."""

    def on_training_part(self, model: nn.Module, part: Any) -> float | None:
        """The quality of the network in evaluation mode on the training part; None where the kind
        of task does not measure it there."""
        return self.evaluate(model, part)[self.quality.name]


KINDS: Registry[Kind] = Registry("kind of task", package=__package__)


def metric_names() -> tuple[str, ...]:
    """The metrics a search may optimize, over all kinds of task."""
    return tuple(dict.fromkeys(m.name for _, kind in KINDS.items() for m in kind.metrics))


def kind_of(dataset: str) -> Kind:
    """The kind of task that a dataset declares."""
    info = DATASETS.get(dataset)
    return KINDS.get(info.kind).of(info)
