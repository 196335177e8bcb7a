"""What a network predicts over its whole input space, where that has one or two dimensions: numbers
for a figure, with the mean and the spread over draws of the weights where the method has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainables.data import DATASETS, Arrays, pixel_statistics

if TYPE_CHECKING:
    from trainables.training import Training

# Points along one input, and along each of two.
FINE, COARSE = 200, 60
# How far beyond the data a picture goes, in shares of their range: there a model is unsure.
MARGIN = 0.25
# More points than this would hide each other.
SHOWN_POINTS = 400


@torch.no_grad()
def predictions(training: Training) -> dict[str, Any] | None:
    """Lists of numbers in the data's own units: `axes`, the values of each input; `mode`, what the
    hard network predicts there; `mean` and `spread` over draws; `points`, training examples. A
    classifier's predictions are its probability of the second class."""
    task, train = training.spec.task, training.train
    info = DATASETS.get(task.dataset)
    if len(info.shape) != 1 or info.shape[0] > 2 or info.classes > 2:
        return None
    assert isinstance(train, Arrays)
    low, high = train.x.amin(0), train.x.amax(0)
    margin = MARGIN * (high - low)
    count = FINE if len(low) == 1 else COARSE
    ends = zip((low - margin).tolist(), (high + margin).tolist(), strict=True)
    axes = [torch.linspace(a, b, count, device=train.device) for a, b in ends]
    grid = torch.cartesian_prod(*axes).view(-1, len(axes))
    model = training.model.eval()
    mean, std = (torch.tensor(t) for t in pixel_statistics(info, task.normalize))
    told: dict[str, Any] = {
        "axes": [(axis.cpu() * s + m).tolist() for axis, m, s in zip(axes, mean, std, strict=True)],
        "mode": _shown(model(grid)).tolist(),
        "points": {
            "x": (train.x[:SHOWN_POINTS].cpu() * std + mean).tolist(),
            "y": train.y[:SHOWN_POINTS].tolist(),
        },
        "classes": info.classes,
    }
    draws = training.method.predictions(model, training.kind.combine, training.spec.seed)
    if draws is not None:
        outputs = _shown(draws.eval().outputs(grid))
        told["mean"] = outputs.mean(0).tolist()
        told["spread"] = outputs.std(0).tolist()
    return told


def _shown(outputs: Tensor) -> Tensor:
    """The number to show of each output: the one there is, or the probability of class 2."""
    return outputs[..., 0] if outputs.shape[-1] == 1 else outputs.softmax(-1)[..., 1]
