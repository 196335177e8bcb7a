"""The counters: what a planned network costs, exactly and before any training.

A network is traced once on the meta device; the cost of any plan of it is then arithmetic.
Conventions (methods.md 4.3, 5.6; design.md 5), with n MACs and e output elements a layer:

  flops  MixBin: F: n + 3e, W: n/2 + 3e (additions only), B: n/64 + 3e; 3 = batch norm 2 +
         activation 1; every layer but poolings and a classifier that is not planned
  ops64  Bi-Real / ReActNet: n for F and W, n/64 for B; every convolution and linear layer
  bops   n times weight bits times activation bits: F 1024 n, W 32 n, B n; every layer
  bytes  what the packed checkpoint's tensors take: 1 bit a binary weight, 4 bytes a scale and
         anything else; of a pruned layer its mask (a bit a weight, or an index a kept one if that
         is less) and the kept weights

A pruned layer does the share of its MACs that it keeps of its weights; S is F but for that.
A costs what B costs: no convention counts the width of accumulators.
Products of two activations, as in attention (queries with keys, weights with values), are rows of
their own: n MACs in full precision under any plan, e = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.layers.pruning import BlockCost, block_cost, mask_bytes
from bitfront.trainables.models import MODELS, Shape, build_model
from bitfront.trainables.plan import (
    BINARY_INPUTS,
    PlanLayer,
    binary_layers,
    check_plan,
    plan_layers,
)
from bitfront.trainables.task import Task

CONVENTIONS = ("flops", "ops64", "bops", "bytes")
# Multiplications and additions a MAC is worth, by level.
FLOPS_PER_MAC = {"F": 1.0, "S": 1.0, "W": 1 / 2, "B": 1 / 64, "A": 1 / 64}
OPS64_PER_MAC = {"F": 1.0, "S": 1.0, "W": 1.0, "B": 1 / 64, "A": 1 / 64}
BITS = {"F": 32 * 32, "S": 32 * 32, "W": 1 * 32, "B": 1 * 1, "A": 1 * 1}
PER_ELEMENT = 3


@dataclass(frozen=True)
class LayerTrace:
    """A convolution or linear layer as the trace saw it."""

    name: str
    kind: str
    macs: int
    elements: int
    weights: int
    channels: int
    inputs: int
    planned: bool


@dataclass(frozen=True)
class LayerCost:
    """One row of the cost table."""

    name: str
    kind: str
    level: str
    planned: bool
    weights: int
    kept: int
    macs: int
    flops: float
    ops64: float
    bops: float
    bytes: int


@dataclass(frozen=True)
class CostTable:
    """The traced layers of one network; answers for any plan."""

    layers: tuple[LayerTrace, ...]
    plan_layers: tuple[PlanLayer, ...]
    other_bytes: int
    parameters: int

    def sizes(self, plan: str) -> dict[str, int]:
        """Weights of the layers that are not F in this plan."""
        weights = {layer.name: layer.weights for layer in self.layers}
        planned = binary_layers(check_plan(plan, self.plan_layers), self.plan_layers)
        return {layer.name: weights[layer.name] for layer, _ in planned}

    def rows(
        self,
        plan: str,
        scale: str = "none",
        shifts: bool = False,
        kept: Mapping[str, int] | None = None,
    ) -> list[LayerCost]:
        """A row a layer. `shifts`: layers with binary inputs keep a number an input channel;
        `kept`: the weights pruned layers keep, by name."""
        check_plan(plan, self.plan_layers)
        level_of = {layer.name: plan[i] for i, layer in enumerate(self.plan_layers)}
        left = kept or {}
        return [
            _row(layer, level_of.get(layer.name, "F"), scale, shifts, left.get(layer.name))
            for layer in self.layers
        ]

    def training_cost(self, plan: str, kept: Mapping[str, int] | None = None) -> BlockCost:
        """Operations of one image in training and evaluation, as Table 6 of robust pruning counts
        them (methods.md 5.6): every layer as a convolution with batch norm and ReLU."""
        return sum(
            (
                block_cost(
                    layer.macs, layer.elements, layer.weights, row.kept / row.weights,
                    row.level not in "FS",
                )
                for layer, row in zip(self.layers, self.rows(plan, kept=kept), strict=True)
                if row.weights
            ),
            BlockCost(0.0, 0.0, 0.0),
        )  # fmt: skip

    def totals(
        self,
        plan: str,
        scale: str = "none",
        shifts: bool = False,
        kept: Mapping[str, int] | None = None,
    ) -> dict[str, float]:
        """All costs of the plan and `flops_pct` against this network in full precision. (A search
        has several networks, and states percentages of one of them: `spaces.space`.)"""
        totals = self._sums(plan, scale, shifts, kept)
        full = self._sums("F" * len(plan), scale, shifts)["flops"]
        totals["flops_pct"] = 100.0 * totals["flops"] / full if full else 100.0
        return totals

    def _sums(
        self, plan: str, scale: str, shifts: bool, kept: Mapping[str, int] | None = None
    ) -> dict[str, float]:
        rows = self.rows(plan, scale, shifts, kept)
        sums = {c: float(sum(getattr(row, c) for row in rows)) for c in CONVENTIONS}
        sums["bytes"] += self.other_bytes
        return sums


def _row(
    layer: LayerTrace, level: str, scale: str, shifts: bool, kept: int | None = None
) -> LayerCost:
    counted = layer.kind != "classifier" or layer.planned
    left = layer.weights if kept is None else kept
    macs = layer.macs if kept is None else layer.macs * kept / layer.weights
    flops = macs * FLOPS_PER_MAC[level] + PER_ELEMENT * layer.elements if counted else 0.0
    if level in "FS":
        size = 4 * left
    else:
        floats = {"none": 0, "layer": 1}.get(scale, layer.channels)
        if shifts and level in BINARY_INPUTS:
            floats += layer.inputs
        size = (left + 7) // 8 + 4 * floats
    if kept is not None:
        size += mask_bytes(layer.weights, kept)
    return LayerCost(
        name=layer.name,
        kind=layer.kind,
        level=level,
        planned=layer.planned,
        weights=layer.weights,
        kept=left,
        macs=layer.macs,
        flops=flops,
        ops64=macs * OPS64_PER_MAC[level],
        bops=float(macs * BITS[level]),
        bytes=size,
    )


def trace(model: Any, shape: Shape, scope: str = "body") -> CostTable:
    """Run `model` (on the meta device) once and note what each weighted layer does."""
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    planned = [layer.name for layer in plan_layers(model, scope)]
    weighted = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }
    seen: dict[str, tuple[int, int]] = {}

    def record(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: torch.Tensor) -> None:
            weight: torch.Tensor = module.weight  # type: ignore[assignment]
            positions = output.numel() // output.shape[1 if isinstance(module, nn.Conv2d) else -1]
            macs, elements = seen.get(name, (0, 0))
            seen[name] = (macs + positions * weight.numel(), elements + output.numel())

        return hook

    handles = [m.register_forward_hook(record(name)) for name, m in weighted.items()]
    was_training = model.training
    counter = FlopCounterMode(display=False)
    try:
        model.eval()
        with torch.no_grad(), counter:
            model(torch.empty(1, *shape, device="meta"))
    except RuntimeError as error:
        raise UserError(f"inputs of shape {tuple(shape)} do not fit the model: {error}") from None
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    _all_reached(planned, seen)
    last = list(seen)[-1]
    layers = []
    for name, (macs, elements) in seen.items():
        module = weighted[name]
        kind = "conv" if isinstance(module, nn.Conv2d) else "linear"
        if name == last and kind == "linear":
            kind = "classifier"
        layers.append(
            LayerTrace(
                name,
                kind,
                macs,
                elements,
                module.weight.numel(),
                module.weight.shape[0],
                module.in_channels if isinstance(module, nn.Conv2d) else module.in_features,
                name in planned,
            )
        )
    layers = _with_products(layers, counter.get_flop_counts(), type(model).__name__)
    counted = sum(weighted[name].weight.numel() for name in seen)
    floats = sum(t.numel() for t in model.state_dict().values() if t.is_floating_point())
    return CostTable(
        layers=tuple(layers),
        plan_layers=tuple(plan_layers(model, scope)),
        other_bytes=4 * (floats - counted),
        parameters=sum(p.numel() for p in model.parameters()),
    )


def _all_reached(planned: list[str], seen: dict[str, Any]) -> None:
    missed = [name for name in planned if name not in seen]
    if missed:
        raise UserError(
            f"layer {missed[0]} is read by its network without being called, so that no plan can "
            "make it binary",
            "timm has most networks in a form that takes a plan: bitfront cost timm/NAME",
        )


def _with_products(
    layers: list[LayerTrace], counts: dict[str, dict[Any, int]], root: str
) -> list[LayerTrace]:
    """The layers, and behind those of each module what it multiplied itself: what torch counted
    in it and in nothing inside it."""
    flops = {
        path.removeprefix(root).lstrip("."): sum(by_operator.values())
        for path, by_operator in counts.items()
        if path != "Global"
    }
    own = dict(flops)
    for name, inside in flops.items():
        holder = name
        while holder:
            holder = holder.rpartition(".")[0]
            if holder in own:  # a list of modules is never called itself
                own[holder] -= inside
                break
    known = {layer.name for layer in layers}
    rows = list(layers)
    for name, count in own.items():
        if count > 0 and name not in known:
            behind = [i for i, row in enumerate(rows) if row.name.startswith(f"{name}.")]
            product = LayerTrace(f"{name}.product", "product", count // 2, 0, 0, 0, 0, False)
            rows.insert(behind[-1] + 1 if behind else len(rows), product)
    return rows


def cost_table(
    name: str, params: dict[str, Any], shape: Shape, classes: int, scope: str = "body"
) -> CostTable:
    """The cost table of a declared model, remembered: a search asks for it at every point."""
    resolved = MODELS.get(name).resolve(params)
    return _cached_table(name, tuple(sorted(resolved.items())), shape, classes, scope)


@lru_cache(maxsize=512)
def _cached_table(
    name: str, params: tuple[tuple[str, Any], ...], shape: Shape, classes: int, scope: str
) -> CostTable:
    import torch

    try:
        with torch.device("meta"):
            model = build_model(name, dict(params), shape, classes)
    except (RuntimeError, OverflowError) as error:  # more weights than can be counted
        reason = first_line(error)
        raise UserError(
            f"model {name} cannot be made for shape {shape} and {classes:,} classes: {reason}"
        ) from None
    return trace(model, shape, scope)


def task_cost_table(task: Task) -> CostTable:
    from bitfront.trainables.data import DATASETS

    info = DATASETS.get(task.dataset)
    return cost_table(task.model.name, task.model.params, info.shape, info.classes, task.binarize)
