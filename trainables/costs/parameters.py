"""The number of parameters of a network, which no plan changes."""

from __future__ import annotations

from bitfront.trainables.costs.base import COSTS, Cost

COSTS.register(
    Cost(
        "parameters",
        label="parameters",
        doc="of the network, whatever its plan",
        of_rest=lambda table: table.parameters,
        place=40,
    )
)
