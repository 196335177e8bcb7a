"""The layers that a plan decides, stored in the ledger, so that a plan can be shown without
building its network: that would import torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.plan import PlanLayer
from bitfront.trainables.task import Task


@dataclass
class Networks:
    """The layers of each network of a search. Networks that differ only in width have equal layers,
    which are stored once."""

    layouts: list[list[PlanLayer]] = field(default_factory=list)
    by_network: dict[str, int] = field(default_factory=dict)

    def of(self, task: Task) -> list[PlanLayer] | None:
        """The layers of the task's network; None in a ledger of a version that did not store
        them."""
        index = self.by_network.get(_key(task))
        return None if index is None else self.layouts[index]

    def stages(self, task: Task) -> list[str] | None:
        """The stage (group of blocks) of every layer."""
        layers = self.of(task)
        return None if layers is None else [layer.stage for layer in layers]

    def learn(self, task: Task) -> bool:
        """Add the network of a task; True when it was not known yet."""
        if _key(task) in self.by_network:
            return False
        layers = [
            PlanLayer(la.name, la.block, la.stage) for la in task_cost_table(task).plan_layers
        ]
        if layers not in self.layouts:
            self.layouts.append(layers)
        self.by_network[_key(task)] = self.layouts.index(layers)
        return True

    def as_json(self) -> dict[str, Any]:
        layouts = [[[la.name, la.block, la.stage] for la in layers] for layers in self.layouts]
        return {"layouts": layouts, "by_network": self.by_network}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> Networks:
        if data is None:
            return cls()
        layouts = [[PlanLayer(*layer) for layer in layers] for layers in data["layouts"]]
        texts = (text for layers in data["layouts"] for layer in layers for text in layer)
        indices = data["by_network"].values()
        if not all(isinstance(text, str) for text in texts) or not all(
            type(index) is int and 0 <= index < len(layouts) for index in indices
        ):
            raise ValueError("its networks")
        return cls(layouts, data["by_network"])


def _key(task: Task) -> str:
    model = json.dumps(task.model.model_dump(mode="json"), sort_keys=True)
    full = f" but {task.keep_full}" if task.keep_full else ""
    return f"{task.binarize}{full} {model}"
