"""Costs: counts of a planned network that are known before any training, a family per file. New
files in this folder are imported automatically: configuration, figures and listings look costs up
here. The table that applies them to a network is in `cost`."""

from bitfront.trainables.costs.base import (
    COSTS,
    Cost,
    KeptChannels,
    LayerTrace,
    PlannedLayer,
    bound,
    cost_labels,
    cost_names,
    measured,
    summed,
)

__all__ = [
    "COSTS",
    "Cost",
    "KeptChannels",
    "LayerTrace",
    "PlannedLayer",
    "bound",
    "cost_labels",
    "cost_names",
    "measured",
    "summed",
]
