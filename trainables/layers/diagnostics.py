"""What is worth knowing of binary layers after an epoch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bitfront.trainables.layers.accumulators import Accumulator
from bitfront.trainables.layers.binary import BinaryLayer

DEAD = 1e-3


def diagnose(
    layers: Sequence[BinaryLayer], signs: Sequence[Tensor], accumulators: Sequence[Accumulator]
) -> dict[str, float]:
    """Shares over all binary weights (methods.md 1.16); `signs` are those of some time ago."""
    if not layers:
        return {}
    weights = sum(layer.latent.numel() for layer in layers)
    flipped, dead, distance = 0, 0, 0.0
    for layer, before in zip(layers, signs, strict=True):
        now = layer.hard_parts()[0]
        flipped += int((now != before).sum())
        soft, heard = layer.forward_backward()
        dead += int((heard.abs() < DEAD).sum())
        distance += float((soft - now).abs().sum())
    found = {
        "flip_rate": flipped / weights,
        "dead_share": dead / weights,
        "distance_to_binary": distance / weights,
    }
    counts = [accumulator.take_counts() for accumulator in accumulators]
    if counts:
        found["overflow_rate"] = sum(c[0] for c in counts) / max(1, sum(c[1] for c in counts))
    return found
