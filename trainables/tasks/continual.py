"""Continual learning: one network learns several tasks one after the other. Its quality is the mean
accuracy over all tasks begun so far. The accuracy of each task is reported too: its values in the
last epoch of every task are the rows of the accuracy matrix (docs/methods.md 2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitfront.trainables.tasks.base import KINDS
from bitfront.trainables.tasks.classification import Classification

if TYPE_CHECKING:
    from torch import nn


class Continual(Classification):
    name = "continual"

    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        evaluate = super().evaluate
        of_tasks = [evaluate(model, part.of_task(k)) for k in range(part.seen)]
        mean = {key: sum(row[key] for row in of_tasks) / len(of_tasks) for key in of_tasks[0]}
        each = {f"val_accuracy_task{k + 1}": row["val_accuracy"] for k, row in enumerate(of_tasks)}
        return mean | each

    def on_training_part(self, model: nn.Module, part: Any) -> float | None:
        """The accuracy on the task that is being trained."""
        return super().evaluate(model, part)["val_accuracy"]


KINDS.register(Continual())
