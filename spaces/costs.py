"""The costs of a point of a space. Many points differ in how they are trained alone, and a search
may list them all: the costs of a network are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.costs import Cost
from bitfront.trainables.methods import METHODS
from bitfront.trainables.task import TrialSpec

OWN_SHARE = "flops_own_pct"
# How many networks are remembered.
MOST = 4096


@dataclass(frozen=True)
class KnownCosts:
    """The costs of the points of one space, by name, `flops_pct` in percent of `full_flops`."""

    full_flops: float
    further: Sequence[Cost]
    """those that are not counted of every network: of the user's own, and of a device table"""
    _found: dict[str, dict[str, float]] = field(default_factory=dict)

    def of(self, spec: TrialSpec) -> dict[str, float]:
        """The costs of a point, which depend on its network, its plan and its method alone."""
        model, activations = spec.task.model, spec.task.settled_activations
        network = (model.name, sorted(model.params.items()), activations)
        key = repr((*network, spec.method, sorted(spec.params.items()), spec.plan))
        if key not in self._found:
            if len(self._found) >= MOST:
                self._found.clear()
            costs = _in_percent_of(self.full_flops, costs_of(spec))
            self._found[key] = costs | _further_costs_of(spec, self.further)
        return dict(self._found[key])


def _in_percent_of(full_flops: float, costs: dict[str, float]) -> dict[str, float]:
    """The costs with `flops_pct` replaced by the percentage of `full_flops`; the percentage of the
    network's own flops in full precision becomes `flops_own_pct`."""
    share = 100.0 * costs["flops"] / full_flops if full_flops else 100.0
    return {**costs, "flops_pct": share, OWN_SHARE: costs["flops_pct"]}


def costs_of(spec: TrialSpec) -> dict[str, float]:
    """Every cost of a trial, by name; `flops_pct` is in percent of its own network in full
    precision."""
    table = task_cost_table(spec.task)
    method = METHODS.get(spec.method)(dict(spec.params))
    parts = table.parts(spec.plan, method, spec.task.settled_activations)
    return table.costs(spec.plan, *parts)


def _further_costs_of(spec: TrialSpec, further: Sequence[Cost]) -> dict[str, float]:
    """These costs of a trial, by name."""
    if not further:
        return {}
    table = task_cost_table(spec.task)
    method = METHODS.get(spec.method)(dict(spec.params))
    parts = (spec.plan, *table.parts(spec.plan, method, spec.task.settled_activations))
    return {cost.name: table.total(cost, *parts) for cost in further}
