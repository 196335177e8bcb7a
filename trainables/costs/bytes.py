"""Bytes of the packed checkpoint's tensors: 1 bit per binary weight, 4 bytes per scale and per
number in full precision. A pruned layer stores its kept weights and its mask, one bit per weight or
one index per kept weight, whichever is smaller (docs/methods.md 5.11)."""

from __future__ import annotations

from bitfront.trainables.costs.base import COSTS, Cost, PlannedLayer
from bitfront.trainables.layers.pruning import mask_bytes


def stored_bytes(planned: PlannedLayer) -> int:
    """Bytes of a layer in a packed checkpoint."""
    layer, level = planned.layer, planned.level
    shifts = planned.shifts * layer.inputs if level.input_bits == 1 else 0
    if layer.tied:  # its weight is stored with the layer it shares it with
        return 4 * shifts
    if planned.letter == "F":  # stored whole, though channels of it may be removed
        return 4 * layer.weights
    if level.weight_bits == 1:
        floats = {"none": 0, "layer": 1}.get(planned.scale, layer.channels) + shifts
        size = (planned.weights + 7) // 8 + 4 * floats
    else:
        size = 4 * planned.weights
    return size if planned.kept is None else size + mask_bytes(layer.weights, planned.kept)


COSTS.register(
    Cost(
        "bytes",
        label="bytes of the packed checkpoint",
        doc="what the packed checkpoint's tensors take",
        of_layer=stored_bytes,
        of_rest=lambda table: table.other_bytes,
        place=30,
    )
)
