"""The check that the weights of a planned network are binary or pruned as its plan says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.binary import BinaryLayer
from bitfront.trainables.layers.weights import PER_CHANNEL


class NotBinaryError(UserError):
    """The weights of a planned layer are not those that its level promises."""


@torch.no_grad()
def verify_binary(model: nn.Module, layers: Sequence[BinaryLayer]) -> None:
    """Raise NotBinaryError unless every binary layer holds -s and +s only, with one s > 0 per scale
    group, and every pruned layer has exactly `kept` non-zero weights, or entries of the factors
    that its weight is computed from. Checked is the weight that
    the network multiplies with in evaluation, whatever parametrization computes it."""
    was_training = model.training
    model.eval()
    try:
        for layer in layers:
            weight = layer.weight
            left = layer.stored()
            if left is None:
                left = int(weight.count_nonzero())
            if layer.kept is not None and left != layer.kept:
                raise NotBinaryError(
                    f"layer {layer.name} holds {left} weights, {layer.kept} were promised"
                )
            if layer.level != "S" and not _two_valued(weight, layer):
                levels = weight.unique().numel()
                raise NotBinaryError(
                    f"layer {layer.name} is not binary: it holds {levels} different values"
                )
    finally:
        model.train(was_training)


def _two_valued(weight: Tensor, layer: BinaryLayer) -> bool:
    groups = weight.flatten(1) if layer.scale in PER_CHANNEL else weight.reshape(1, -1)
    s = groups.abs().amax(1, keepdim=True)
    fine = groups.abs() == s
    if layer.kept is not None:
        fine |= groups == 0
    return bool((fine & (s > 0)).all())
