"""Bit operations, n MACs x weight bits x activation bits, of every layer:

    F, S: 1024 n        W: 32 n        B, A: n

No convention counts the width of accumulators."""

from __future__ import annotations

from bitfront.trainables.costs.base import COSTS, Cost, PlannedLayer


def bops(planned: PlannedLayer) -> float:
    """Bit operations of a layer: MACs times bits of weights times bits of inputs."""
    return float(planned.macs * planned.level.weight_bits * planned.level.input_bits)


COSTS.register(
    Cost(
        "bops",
        label="bit operations",
        doc="MACs x weight bits x activation bits",
        of_layer=bops,
        place=20,
    )
)
