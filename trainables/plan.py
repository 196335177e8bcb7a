"""Plans: which layers of a network are binary. One letter a layer: F full precision, W binary
weights, B binary weights and activations, A with narrow accumulators too. What a plan does to a
network is in `binary`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.registry import UserError

if TYPE_CHECKING:
    from torch import nn

LEVELS = {
    "F": "full precision",
    "W": "binary weights",
    "B": "binary weights and activations",
    "A": "binary weights and activations, narrow accumulators",
}
# The levels whose layers take binary inputs.
BINARY_INPUTS = "BA"


@dataclass(frozen=True)
class PlanLayer:
    """A layer a plan decides: its module path, and the block and stage it belongs to."""

    name: str
    block: str
    stage: str


def plan_layers(model: nn.Module, scope: str = "body") -> list[PlanLayer]:
    """The layers a plan decides, in forward order. A model of ours says so itself; in any other
    every convolution and linear layer counts, `body` leaving out the first and the last one."""
    own = getattr(model, "plan_layers", None)
    if own is not None:
        return own(scope)
    from torch import nn

    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and module.weight is not None
    ]
    if scope == "body":
        names = names[1:-1]
    return [PlanLayer(n, n.rpartition(".")[0] or n, n.partition(".")[0]) for n in names]


def check_plan(
    plan: str, layers: Sequence[PlanLayer], levels: Sequence[str] | str = "".join(LEVELS)
) -> str:
    """The plan, or an error that says what is wrong with it."""
    if len(plan) != len(layers):
        raise UserError(
            f"plan: '{plan}' has {len(plan)} letters, the model has {len(layers)} layers to plan"
        )
    for index, level in enumerate(plan):
        if level not in LEVELS:
            raise UserError(
                f"plan: letter {index + 1} is '{level}', a plan has the letters "
                + ", ".join(f"{k} ({v})" for k, v in LEVELS.items())
            )
        if level != "F" and level not in levels:
            raise UserError(
                f"plan: letter {index + 1} is '{level}', but the method takes only "
                + ", ".join(sorted({"F", *levels}, key=list(LEVELS).index))
            )
    return plan


def expand(groups: Sequence[str], letters: Sequence[str]) -> str:
    """A letter a group (block or stage, in order of first appearance) as a letter a layer."""
    order = list(dict.fromkeys(groups))
    by_group = dict(zip(order, letters, strict=True))
    return "".join(by_group[group] for group in groups)


def binary_layers(plan: str, layers: Sequence[PlanLayer]) -> list[tuple[PlanLayer, str]]:
    return [(layer, level) for layer, level in zip(layers, plan, strict=True) if level != "F"]
