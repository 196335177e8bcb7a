"""FLOPs as MixBin counts them (docs/methods.md 4.3), with n MACs and e output elements per layer:

    F, S: n + 3e        W: n/2 + 3e (additions only)        B, A: n/64 + 3e

3 = 2 of the batch norm + 1 of the activation. Poolings are not counted, nor is a classifier that no
plan decides. Products of two activations, as in attention, are layers of their own with e = 0."""

from __future__ import annotations

from bitfront.trainables.costs.base import COSTS, Cost, PlannedLayer

PER_ELEMENT = 3


def flops(planned: PlannedLayer) -> float:
    """FLOPs of a layer at its level."""
    layer, level = planned.layer, planned.level
    if layer.kind == "classifier" and not layer.planned:
        return 0.0
    per_mac = 1.0
    if level.weight_bits == 1:
        per_mac = 1 / 64 if level.input_bits == 1 else 1 / 2
    return planned.macs * per_mac + PER_ELEMENT * planned.elements


COSTS.register(
    Cost(
        "flops",
        label="FLOPs, MixBin convention",
        doc="MixBin convention, MACs + 3 per output element; B 1/64, W 1/2 of the MACs; the "
        "classifier is not counted",
        of_layer=flops,
        place=0,
    )
)
COSTS.register(
    Cost(
        "flops_pct",
        label="FLOPs, MixBin convention, % of the dearest FP network",
        doc="flops in percent of the dearest full-precision network of the space",
        percent_of="flops",
        place=1,
    )
)
COSTS.register(
    Cost(
        "flops_own_pct",
        label="FLOPs, MixBin convention, % of the same network in FP",
        doc="flops in percent of the trial's own network in full precision",
        percent_of="flops",
        place=2,
    )
)
