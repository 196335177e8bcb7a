"""Masks of a packed network: which weights its pruned layers keep. They are drawn in
`dashboards.figures.networks.masks`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bitfront.trainables import packed
from bitfront.trainables.cost import task_plan_layers
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import shown
from bitfront.trainables.plan import binary_layers


def layer_masks(checkpoint: Path) -> tuple[dict[str, NDArray[np.bool_]], str]:
    """Masks by planned layer, True where a weight is kept; and a title with model and method."""
    model, spec, _ = packed.load(checkpoint)
    masks = {}
    for layer, _level in binary_layers(spec.plan, task_plan_layers(spec.task, model)):
        weight: torch.Tensor = model.get_submodule(layer.name).weight  # type: ignore[assignment]
        masks[layer.name] = (weight.detach() != 0).numpy()
    return masks, shown(f"{spec.task.model.name}, {spec.method}")


def pruned_masks(checkpoint: Path) -> tuple[dict[str, NDArray[np.bool_]], str]:
    """The masks of those layers that have lost a weight, and the title."""
    masks, title = layer_masks(checkpoint)
    pruned = {name: mask for name, mask in masks.items() if not mask.all()}
    if not pruned:
        raise UserError(
            f"{checkpoint}: no masks, its layers keep every weight",
            "methods that prune: bitfront methods",
        )
    return pruned, title
