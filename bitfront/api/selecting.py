"""`bf.select`: a plan for a budget by one of the selectors, without a search."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitfront.api.by_value import dataset_of, reference_to
from bitfront.search.config.load import load_data
from bitfront.search.ledger.folder import home as home_of
from bitfront.search.ledger.folder import pretrained_folder, selections_folder
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.plan import with_real_inputs
from bitfront.trainables.selectors.base import SelectionSpec
from bitfront.trainables.selectors.selection import select as run_selector

if TYPE_CHECKING:
    from torch import nn


def select(
    model: str | dict[str, Any] | Callable[..., Any] | nn.Module,
    data: Any,
    selector: str = "mixbin-grad",
    budget: float = 0.4,
    level: str = "B",
    method: str = "bnn",
    epochs: int = 10,
    seed: int = 0,
    home: str | os.PathLike[str] | None = None,
    **task: Any,
) -> str:
    """The plan that a selector makes for `budget`, a share of the flops in full precision. A
    selector that looks at a trained network trains one for `epochs` first, beginning with the
    weights of `model` where that is a network; `task`: further keys of a task."""
    if not 0 < budget <= 1:
        raise UserError(f"select: budget {budget} is no share of the flops: give 0.4 for 40 %")
    root = home_of(home)
    described = {
        "dataset": dataset_of(data, root),
        "model": _model(model, root),
        "epochs": epochs,
        **task,
    }
    space = {"method": method, "plan": {"per": "layer", "levels": ["F", level]}}
    config, _ = load_data({"name": "select", "task": described, "space": space}, "bf.select")
    spec = SelectionSpec(selector=selector, task=config.task, method=method, level=level, seed=seed)
    table = task_cost_table(spec.task)
    layers = table.plan_layers
    least = table.costs(with_real_inputs(level * len(layers), layers))["flops_pct"]
    if least > 100.0 * budget:
        raise UserError(
            f"select: the cheapest plan of F and {level} takes {least:.1f} % of the flops, more "
            f"than a budget of {100 * budget:g} %"
        )
    if spec.build().method is not None:
        raise UserError(f"select: {selector} removes channels, it makes no plan")
    selection = run_selector(spec, selections_folder(root), pretrained_folder(root), gpus=1.0)
    return selection.plan(table, 100.0 * budget, level=level)


def _model(model: Any, root: Any) -> dict[str, Any]:
    if isinstance(model, dict):
        return {**model, "name": reference_to(model["name"], "model", root)}
    if isinstance(model, str) or hasattr(model, "__qualname__"):
        return {"name": reference_to(model, "model", root)}

    def made() -> Any:
        return copy.deepcopy(model)

    made.__name__ = type(model).__name__
    return {"name": reference_to(made, "model", root)}
