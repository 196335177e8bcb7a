"""Classification: cross-entropy, accuracy and robust accuracy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bitfront.trainables.attacks import EVALUATION_ATTACKS
from bitfront.trainables.data import DatasetInfo, in_order
from bitfront.trainables.metrics import Metric
from bitfront.trainables.tasks.base import KINDS, Kind

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.task import Task

EVALUATION_BATCH = 512


class Classification(Kind):
    name = "classification"
    metrics = (
        Metric("val_accuracy", "accuracy", ideal=1.0),
        Metric("val_loss", "loss", ideal=0.0, maximize=False, share=False),
        *(
            Metric(attack.metric, f"robust accuracy under {attack.title}", ideal=1.0)
            for _, attack in EVALUATION_ATTACKS.items()
        ),
    )

    def chance(self, metric: str, info: DatasetInfo) -> float:
        """The metric of a uniform guess; robust accuracy: of a network with a constant output."""
        return math.log(info.classes) if metric == "val_loss" else 1.0 / info.classes

    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(output, y, label_smoothing=task.loss.label_smoothing)

    def combine(self, outputs: Tensor, average: str) -> Tensor:
        """The mean of the logits, or logits whose softmax is the mean of the probabilities."""
        if average == "logits":
            return outputs.mean(0)
        return outputs.softmax(-1).mean(0).clamp_min(1e-12).log()

    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        """`val_accuracy`, as a fraction, and `val_loss`, the mean cross-entropy."""
        import torch
        from torch.nn.functional import cross_entropy

        model.eval()
        correct = torch.zeros((), device=part.device, dtype=torch.int64)
        loss = torch.zeros((), device=part.device)
        with torch.no_grad():
            for x, y in in_order(part, EVALUATION_BATCH):
                logits: Tensor = model(x)
                correct += (logits.argmax(1) == y).sum()
                loss += cross_entropy(logits, y, reduction="sum")
        n = len(part)
        return {"val_accuracy": int(correct) / n, "val_loss": float(loss) / n}


KINDS.register(Classification())
