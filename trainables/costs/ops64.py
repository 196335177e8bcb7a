"""OPs as Bi-Real Net and ReActNet count them (docs/methods.md 4.3): n MACs for F, S and W, n/64 for
B and A; every convolution and linear layer."""

from __future__ import annotations

from bitfront.trainables.costs.base import COSTS, Cost, PlannedLayer


def ops64(planned: PlannedLayer) -> float:
    """Operations of a layer, 64 binary ones counted as one."""
    binary = planned.level.weight_bits == planned.level.input_bits == 1
    return planned.macs / 64 if binary else float(planned.macs)


COSTS.register(
    Cost(
        "ops64",
        label="OPs, Bi-Real convention (binary / 64)",
        doc="Bi-Real convention, binary MACs / 64 + the rest",
        of_layer=ops64,
        place=10,
    )
)
