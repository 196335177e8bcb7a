"""Latency on one machine: the times of the layers at their levels, and that of the rest, as a
device table has them (`devices`):

    t(plan) = t_rest + sum_i t_i(level of i)

The times are fitted to whole networks, so that sums meet them (docs/deploy.md); the table states
how far other plans are off."""

from __future__ import annotations

from bitfront.trainables.costs.base import COSTS, Cost, PlannedLayer
from bitfront.trainables.costs.devices import DeviceTable

NAME = "latency_ms"
DOC = (
    "milliseconds per call on the machine of a device table (`bitfront bench`): the times of the "
    "layers at their levels added up"
)


def latency(device: DeviceTable) -> Cost:
    """The cost on this device."""

    def of_layer(planned: PlannedLayer) -> float:
        if planned.layer.tied:  # its time is a part of that of the layer it shares its weight with
            return 0.0
        return device.of_layer(planned.network, planned.layer.name, planned.letter)

    return Cost(
        NAME,
        label=f"latency, ms ({device.describe()})",
        doc=DOC,
        of_layer=of_layer,
        of_rest=lambda table: device.of_rest(table.identity),
    )


COSTS.register(Cost(NAME, label="latency, ms", doc=DOC, on=latency, place=50))
