"""Data for the figures of a finished training run: predictions over the input space, the quantizer
over its schedule, the masks of pruned layers. The figures are drawn in `dashboards`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from bitfront.trainables.data import DATASETS, Arrays, pixel_statistics
from bitfront.trainables.methods import build_method
from bitfront.trainables.methods.quantizer_pair import QuantizerPair
from bitfront.trainables.plan import BINARY_INPUTS

if TYPE_CHECKING:
    from bitfront.trainables.layers.quantizers import Pair
    from bitfront.trainables.task import TrialSpec
    from bitfront.trainables.training.loop import Training

# Points along one input, and along each of two.
FINE, COARSE = 200, 60
# The margin of a figure around the data, as a share of their range.
MARGIN = 0.25
# More points than this would hide each other.
SHOWN_POINTS = 400


# The latents and the fractions of the schedule at which a quantizer is shown.
LATENTS = torch.arange(-80, 81) / 40
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
# The most layers whose masks are shown, and the most cells per side; larger masks are averaged.
MOST_LAYERS, MOST_CELLS = 12, 32


def pictures_of(training: Training) -> dict[str, dict[str, Any]]:
    """The data of all figures that apply to this training run, by name."""
    made = {
        "predictions": predictions(training),
        "quantizer": quantizer(training.spec),
        "masks": masks(training),
    }
    return {name: data for name, data in made.items() if data is not None}


def quantizer(spec: TrialSpec) -> dict[str, Any] | None:
    """F and B of the method's pair at fractions of its schedule; for a network with binary inputs,
    those of the inputs too."""
    method = build_method(spec.method, dict(spec.params))
    if not isinstance(method, QuantizerPair) or method.pair().shifted or set(spec.plan) == {"F"}:
        return None
    values = [method.value_at(fraction) for fraction in FRACTIONS]
    shown = {"weights": values}
    floored = [max(method.input_floor, value) for value in values]
    if set(spec.plan) & set(BINARY_INPUTS) and floored != values:
        shown["inputs"] = floored
    curves = {name: [_curve(method.pair(), v) for v in given] for name, given in shown.items()}
    return {
        "x": LATENTS.tolist(),
        "fractions": list(FRACTIONS),
        "values": values,
        "forward": {name: [f for f, _ in pairs] for name, pairs in curves.items()},
        "backward": {name: [b for _, b in pairs] for name, pairs in curves.items()},
    }


def _curve(pair: Pair, value: float) -> tuple[list[float], list[float]]:
    x = LATENTS.clone().requires_grad_()
    out = pair(x, value)
    out.sum().backward()
    assert x.grad is not None
    return out.detach().tolist(), x.grad.tolist()


@torch.no_grad()
def masks(training: Training) -> dict[str, Any] | None:
    """For every pruned layer, the share of each kernel that is kept, as rows of (output, input)
    channels."""
    found = {}
    pruned = [layer for layer in training.network.binary if layer.kept is not None]
    for layer in pruned[:MOST_LAYERS]:
        signs, _ = layer.hard_parts()
        mask = (signs != 0).float()
        shares = mask.reshape(mask.shape[0], mask.shape[1], -1).mean(2)
        cells = (min(MOST_CELLS, shares.shape[0]), min(MOST_CELLS, shares.shape[1]))
        small = adaptive_avg_pool2d(shares[None], cells)[0].tolist()
        found[layer.name] = {
            "shape": list(mask.shape),
            "kept": float(mask.mean()),
            "cells": [[round(share, 3) for share in row] for row in small],
        }
    return {"layers": found} if found else None


@torch.no_grad()
def predictions(training: Training) -> dict[str, Any] | None:
    """Predictions on a grid of at most two inputs, as lists of numbers in the units of the data;
    None for other datasets. `axes`: the values of each input; `mode`: the predictions of the hard
    network; `mean` and `spread`: over draws of the weights; `points`: training examples. The
    prediction of a classifier is its probability of the second class."""
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
    found: dict[str, Any] = {
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
        found["mean"] = outputs.mean(0).tolist()
        found["spread"] = outputs.std(0).tolist()
    return found


def _shown(outputs: Tensor) -> Tensor:
    """The number to show for each output: the only one, or the probability of the second class."""
    return outputs[..., 0] if outputs.shape[-1] == 1 else outputs.softmax(-1)[..., 1]
