"""Regression of one number: the loss is the squared error, the metric its root on the validation
part. Targets are standardised, so that the unit is one standard deviation of the targets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data import DatasetInfo, in_order
from bitfront.trainables.metrics import Metric
from bitfront.trainables.tasks.base import KINDS, Kind

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.task import Task

EVALUATION_BATCH = 512


class Regression(Kind):
    name = "regression"
    metrics = (
        Metric("val_rmse", "error in standard deviations", ideal=0.0, maximize=False, share=False),
        Metric("val_loss", "loss", ideal=0.0, maximize=False, share=False),
    )

    def chance(self, metric: str, info: DatasetInfo) -> float:
        """1, the error of predicting the mean, in standard deviations."""
        return 1.0

    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        from torch.nn.functional import mse_loss

        return mse_loss(output.squeeze(1), y)

    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        import torch

        model.eval()
        total = torch.zeros((), device=part.device)
        with torch.no_grad():
            for x, y in in_order(part, EVALUATION_BATCH):
                total += (model(x).squeeze(1) - y).square().sum()
        loss = float(total) / len(part)
        return {"val_rmse": math.sqrt(loss), "val_loss": loss}


KINDS.register(Regression())
