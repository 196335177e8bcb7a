"""What a kind of task is: its loss, its evaluation, and the metrics a search may optimize."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables.data import DATASETS, DatasetInfo
from bitfront.trainables.errors import UnknownNameError, did_you_mean
from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.task import Task


@dataclass(frozen=True)
class Metric:
    """Something measured on the validation part: its name in YAML and ledger starts with `val_`."""

    name: str
    label: str
    ideal: float
    maximize: bool = True
    share: bool = True
    """a fraction in [0, 1], shown to people in percent"""

    @property
    def bare(self) -> str:
        return self.name.removeprefix("val_")

    @property
    def unit(self) -> str:
        return " %" if self.share else ""

    def number(self, value: float | None, digits: int = 2) -> str:
        """The value as people read it, without its unit."""
        if value is None:
            return "-"
        return f"{100 * value:.{digits}f}" if self.share else f"{value:.4g}"

    def text(self, value: float | None, digits: int = 2) -> str:
        return self.number(value, digits) + ("" if value is None else self.unit)

    def better(self, one: float, other: float) -> bool:
        return one > other if self.maximize else one < other


class Kind(ABC):
    """A batch is (x, y), whatever the dataset makes of them; the network is called with x."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    """the first one is the quality a search optimizes unless it says otherwise"""
    networks: ClassVar[str] = "classification"
    """the kind of task whose networks it takes: those for classification end in so many numbers"""

    @property
    def quality(self) -> Metric:
        return self.metrics[0]

    def metric(self, name: str) -> Metric:
        for metric in self.metrics:
            if metric.name == name:
                return metric
        hint = did_you_mean(name, [metric.name for metric in self.metrics])
        raise UnknownNameError(f"unknown metric '{name}', {hint}")

    @abstractmethod
    def chance(self, metric: str, info: DatasetInfo) -> float:
        """The metric of a network that has learned nothing: where hypervolumes are measured from"""

    @abstractmethod
    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        """What a step of training makes smaller."""

    def combine(self, outputs: Tensor, average: str) -> Tensor:
        """One output of those of many draws of a network's weights, in the first dimension."""
        return outputs.mean(0)

    @abstractmethod
    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        """The metrics of this kind that every task has, in evaluation mode; `val_loss` is always
        among them."""


KINDS: Registry[Kind] = Registry("kind of task")
# Of all kinds; filled as they are registered.
METRIC_NAMES: list[str] = []


def register(kind: Kind) -> None:
    KINDS.add(kind.name, kind)
    METRIC_NAMES.extend(m.name for m in kind.metrics if m.name not in METRIC_NAMES)


def kind_of(dataset: str) -> Kind:
    return KINDS.get(DATASETS.get(dataset).kind)
