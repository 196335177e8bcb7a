"""Regression of one number or several: the loss is the squared error, the metric its root on the
validation part. Targets of our datasets are standardised, so that the unit is one standard
deviation of the targets; those of the user's own are in their unit."""

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

    def of(self, info: DatasetInfo) -> Kind:
        return self if info.own is None else OwnRegression()

    def chance(self, metric: str, info: DatasetInfo) -> float:
        """The error of predicting the mean: 1 standard deviation."""
        return 1.0

    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        from torch.nn.functional import mse_loss

        return mse_loss(_like(output, y), y)

    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        import torch

        model.eval()
        total = torch.zeros((), device=part.device)
        with torch.no_grad():
            for x, y in in_order(part, EVALUATION_BATCH):
                error = (_like(model(x), y) - y).square()
                total += (error if error.dim() == 1 else error.flatten(1).mean(1)).sum()
        loss = float(total) / len(part)
        return {"val_rmse": math.sqrt(loss), "val_loss": loss}


class OwnRegression(Regression):
    """Regression of targets in a unit of the user's own."""

    metrics = (
        Metric("val_rmse", "error", ideal=0.0, maximize=False, share=False),
        Metric("val_loss", "loss", ideal=0.0, maximize=False, share=False),
    )

    def chance(self, metric: str, info: DatasetInfo) -> float:
        """The standard deviation of the targets, and its square."""
        assert info.own is not None
        spread = info.own.spread
        return spread**2 if metric == "val_loss" else spread


def _like(output: Tensor, y: Tensor) -> Tensor:
    """The output in the shape of the targets."""
    return output.squeeze(1) if y.dim() == 1 else output


KINDS.register(Regression())
