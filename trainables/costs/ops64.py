"""OPs as Bi-Real Net and ReActNet count them, of every convolution and linear layer with n MACs:

F, S, W: n        B, A: n/64"""

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
