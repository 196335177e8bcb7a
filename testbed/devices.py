"""Device tables made by hand: times that nobody measured."""

from __future__ import annotations

from bitfront.trainables.cost import CostTable
from bitfront.trainables.costs.devices import Agreement, DeviceTable, NetworkTimes

REST = 0.5


def made_times(table: CostTable, full: float = 2.0, binary: float = 0.25) -> NetworkTimes:
    """Times of a network: layer i takes `full` + i milliseconds at F and W, and `binary` at B."""
    names = [layer.name for layer in table.plan_layers]
    layers = {n: {"F": full + i, "W": full + i, "B": binary} for i, n in enumerate(names)}
    agreement = Agreement(plans=20, error_pct=3.0, rank=0.98)
    return NetworkTimes(model="made", layers=layers, rest=REST, agreement=agreement, kernels=1)


def made_device(*tables: CostTable, name: str = "made", cpu: str = "CPU of a test") -> DeviceTable:
    """A device table with these networks."""
    networks = {table.identity: made_times(table) for table in tables}
    return DeviceTable(name, cpu, 1, 1, networks)
