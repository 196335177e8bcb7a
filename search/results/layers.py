"""The layers of the networks that a search has tried, for pictures of plans. The ledger stores them
(`search.ledger.networks`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bitfront.search.results.results import Results
from bitfront.search.results.view import Layer
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.own_code import is_reference, shown
from bitfront.trainables.plan import PlanLayer
from bitfront.trainables.task import Task


def network_key(task: Task) -> str:
    """The name of a network with its parameters, which identifies it within a search."""
    params = ", ".join(f"{k} {v}" for k, v in sorted(task.model.params.items()))
    return f"{shown(task.model.name)} {params}".strip()


def networks(results: Results) -> dict[str, Sequence[Layer]]:
    """The layers of every network that was tried, by `network_key`: from the ledger, or from the
    network, built again, where an old ledger does not have them."""
    tasks = {network_key(entry.spec.task): entry.spec.task for entry in results.entries}
    found: dict[str, Sequence[Layer]] = {}
    for key, task in tasks.items():
        known = results.networks.of(task)
        layers = known if known is not None else _layers(task.model_dump_json())
        found[key] = [Layer(layer.name, layer.block, layer.stage) for layer in layers]
    return found


@lru_cache(maxsize=256)
def _layers(task: str) -> tuple[PlanLayer, ...]:
    """The planned layers of a task, given as JSON so that they can be cached."""
    given = Task.model_validate_json(task)
    if is_reference(given.model.name):  # looking at a search runs no code
        return ()
    return tuple(task_cost_table(given).plan_layers)
