"""What the pruned layers of a packed network keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def layer_masks(checkpoint: Path) -> tuple[dict[str, NDArray[np.bool_]], str]:
    """By planned layer, True where a weight is kept; and what the network is called."""
    import torch

    from bitfront.trainables import packed
    from bitfront.trainables.plan import binary_layers, plan_layers

    model, spec, _ = packed.load(checkpoint)
    planned = binary_layers(spec.plan, plan_layers(model, spec.task.binarize))
    masks = {}
    for layer, _level in planned:
        weight: torch.Tensor = model.get_submodule(layer.name).weight  # type: ignore[assignment]
        masks[layer.name] = (weight.detach() != 0).numpy()
    return masks, f"{spec.task.model.name}, {spec.method}"


def pruned_masks(checkpoint: Path) -> tuple[dict[str, NDArray[np.bool_]], str]:
    """Only of layers that have lost a weight."""
    masks, title = layer_masks(checkpoint)
    pruned = {name: mask for name, mask in masks.items() if not mask.all()}
    if not pruned:
        raise UserError(
            f"{checkpoint}: no masks, its layers keep every weight",
            "methods that prune: bitfront methods",
        )
    return pruned, title
