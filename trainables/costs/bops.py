"""Bit operations: n MACs times weight bits times activation bits, so that F and S cost 1024 n, W 32
n, B and A n; every layer. The width of accumulators is not counted, by no convention."""

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
