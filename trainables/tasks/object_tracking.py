"""Object tracking in image sequences: the balanced logistic loss of SiamFC (Bertinetto et al.,
ECCVW 2016), and the measures of OTB (docs/methods.md 4.7)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data import DatasetInfo, in_order
from bitfront.trainables.metrics import Metric
from bitfront.trainables.tasks.base import KINDS, Kind

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.task import Task

# r_pos as a share of the response's extent: 16 pixels of 128 = 255 - 127, search region - exemplar.
POSITIVE_SHARE = 16 / 128
LOSS_BATCH = 64


class ObjectTracking(Kind):
    name = "object-tracking"
    aliases = ("tracking",)
    networks = "object-tracking"
    metrics = (
        Metric("val_auc", "success AUC", ideal=1.0),
        Metric("val_precision", "precision at 20 px", ideal=1.0),
        Metric("val_loss", "loss", ideal=0.0, maximize=False, share=False),
    )

    def chance(self, metric: str, info: DatasetInfo) -> float:
        """0 for a tracker that is always wrong; the loss log(2) of responses that are all 0."""
        return math.log(2) if metric == "val_loss" else 0.0

    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        return balanced_logistic(output, y)

    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        import torch

        from bitfront.trainables.tasks.trackers.siamfc import measure, track

        model.eval()
        with torch.no_grad():
            total = sum(
                float(balanced_logistic(model(x), y)) * len(y)
                for x, y in in_order(part, LOSS_BATCH)
            )
        scores = measure([item.boxes for item in part.items], track(model, part))
        return {
            "val_auc": scores.auc,
            "val_precision": scores.precision,
            "val_loss": total / len(part),
        }


def balanced_logistic(responses: Tensor, places: Tensor) -> Tensor:
    """The balanced logistic loss of SiamFC, mean over pairs (Bertinetto et al., 2016;
    docs/methods.md 4.7): sum_u weight[u] log(1 + exp(-y[u] v[u])) over the cells u of a response v.
    y[u] = +1 where the L1 distance from u to the target is at most r_pos, else -1; the cells of
    either sign have a total weight of 1/2. `places` are the targets, as shares of the extent from
    the middle."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    side = responses.shape[-1]
    cells = torch.arange(side, device=responses.device) - (side - 1) / 2
    target = places * (side - 1)
    across = (cells - target[:, :1]).abs()
    down = (cells - target[:, 1:]).abs()
    labels = (across[:, None, :] + down[:, :, None] <= POSITIVE_SHARE * (side - 1)).float()
    positive = labels.sum((1, 2), keepdim=True).clamp_min(1)
    negative = (side * side - positive).clamp_min(1)
    weights = torch.where(labels > 0, 0.5 / positive, 0.5 / negative)
    losses = binary_cross_entropy_with_logits(responses.float(), labels, reduction="none")
    return (weights * losses).sum((1, 2)).mean()


KINDS.register(ObjectTracking())
