"""Tasks with a loss or metrics of the user's own, which come with their data. Where the targets are
classes or numbers, the metrics of classification or regression are measured too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data import DatasetInfo, in_order
from bitfront.trainables.data.own.look import key_of
from bitfront.trainables.data.own.opened import Goal, blame, goal_of
from bitfront.trainables.data.own.target import aligned
from bitfront.trainables.errors import UserError
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code import shown
from bitfront.trainables.tasks.base import KINDS, Kind

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.task import Task

EVALUATION_BATCH = 512
_LOSS = Metric("val_loss", "loss", ideal=0.0, maximize=False, share=False)
_BASES = {"classes": "classification", "regression": "regression"}


class Own(Kind):
    """A task on data with a loss or metrics of their own; none without data."""

    name = "own"
    metrics: tuple[Metric, ...] = (_LOSS,)

    def __init__(self, info: DatasetInfo | None = None) -> None:
        self.info = info
        self.base: Kind | None = None
        if info is None or info.own is None:
            return
        declared = info.own
        if declared.target in _BASES:
            self.base = KINDS.get(_BASES[declared.target]).of(info)
        own = [_metric(m.name, m.maximize, m.chance) for m in declared.metrics]
        known = {metric.name for metric in own}
        more = [m for m in (self.base.metrics if self.base else (_LOSS,)) if m.name not in known]
        self.metrics = (*own, *more)

    def of(self, info: DatasetInfo) -> Kind:
        return Own(info)

    @property
    def dataset(self) -> str:
        assert self.info is not None
        return key_of(self.info.name)

    @property
    def goal(self) -> Goal:
        """The functions of the user; their code is run at the first use."""
        return goal_of(self.dataset)

    def chance(self, metric: str, info: DatasetInfo) -> float:
        """The value for outputs that are all zero, measured when the data were looked at."""
        assert info.own is not None
        for own in info.own.metrics:
            if metric == f"val_{own.name}":
                return own.chance
        if metric == "val_loss" and info.own.own_loss:
            return info.own.loss_chance
        return 0.0 if self.base is None else self.base.chance(metric, info)

    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        loss = self.goal.loss
        if loss is None:
            assert self.base is not None
            return self.base.loss(output, y, task)
        with blame(self.dataset, "an error in the loss"):
            value: Tensor = loss(aligned(output, y), y)
        if getattr(value, "shape", None) != ():
            raise UserError(
                f"{shown(self.dataset)}: the loss of a batch should be one number, a tensor",
                "take its mean: .mean()",
            )
        return value

    def combine(self, outputs: Tensor, average: str) -> Tensor:
        return outputs.mean(0) if self.base is None else self.base.combine(outputs, average)

    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        """The metrics of the user's own over the whole part, `val_loss`, and those of the kind that
        the targets are for."""
        import torch

        measured = {} if self.base is None else self.base.evaluate(model, part)
        goal, outputs, targets, total = self.goal, [], [], 0.0
        model.eval()
        with torch.no_grad():
            for x, y in in_order(part, EVALUATION_BATCH):
                output = model(x)
                if goal.loss is not None:
                    with blame(self.dataset, "an error in the loss"):
                        total += float(goal.loss(aligned(output, y), y)) * len(y)
                outputs.append(output.cpu())
                targets.append(y.cpu())
            output, y = torch.cat(outputs), torch.cat(targets)
            if goal.loss is not None:
                measured["val_loss"] = total / len(part)
            for name, function in goal.metrics.items():
                with blame(self.dataset, f"an error in the metric {name}"):
                    measured[f"val_{name}"] = float(function(aligned(output, y), y))
        wrong = [n for n, v in measured.items() if n != "val_loss" and not math.isfinite(v)]
        if wrong:
            raise UserError(f"{shown(self.dataset)}: {wrong[0]} is {measured[wrong[0]]}")
        return measured


def _metric(name: str, maximize: bool, chance: float) -> Metric:
    """A metric of the user's own. The best value is not known: 1 or 0, or beyond the value of
    outputs that are zero."""
    ideal = max(1.0, chance + 1.0 if chance >= 1 else 1.0) if maximize else min(0.0, chance)
    return Metric(f"val_{name}", name.replace("_", " "), ideal, maximize, share=False)


KINDS.register(Own())
