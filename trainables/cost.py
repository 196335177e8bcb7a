"""The cost table of a network: its costs under any plan, exact and known before training. The
network is traced once on the meta device; the costs of a plan are then sums over its layers. The
conventions, with their equations, are in `costs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitfront.trainables.costs import COSTS, Cost, LayerTrace, PlannedLayer, summed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.layers.pruning import BlockCost, block_cost
from bitfront.trainables.models import MODELS, Shape, build_model
from bitfront.trainables.plan import BY_LETTER, PlanLayer, binary_layers, check_plan, plan_layers
from bitfront.trainables.settings import REPLACEMENTS
from bitfront.trainables.task import Task

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class LayerCost:
    """One row of the cost table: a layer at its level, and its costs by name."""

    name: str
    kind: str
    level: str
    planned: bool
    weights: int
    kept: int
    macs: int
    costs: Mapping[str, float]

    def describe(self) -> dict[str, Any]:
        """The machine-readable form, with each cost as a key of its own."""
        own = dict(vars(self))
        costs: Mapping[str, float] = own.pop("costs")
        return own | dict(costs)


@dataclass(frozen=True)
class CostTable:
    """The traced layers of one network, from which the costs of any plan are computed."""

    layers: tuple[LayerTrace, ...]
    plan_layers: tuple[PlanLayer, ...]
    other_bytes: int
    parameters: int

    def sizes(self, plan: str) -> dict[str, int]:
        """The number of weights of every layer that is not F in this plan, by name."""
        weights = {layer.name: layer.weights for layer in self.layers}
        planned = binary_layers(check_plan(plan, self.plan_layers), self.plan_layers)
        return {layer.name: weights[layer.name] for layer, _ in planned}

    def rows(
        self,
        plan: str,
        scale: str = "none",
        shifts: int = 0,
        kept: Mapping[str, int] | None = None,
    ) -> list[LayerCost]:
        """One row per layer. `scale`: how many scales binary layers store; `shifts`: how many
        numbers per input channel layers with binary inputs store; `kept`: how many weights pruned
        layers keep, by name."""
        counted = summed()
        return [_row(layer, counted) for layer in self._planned(plan, scale, shifts, kept)]

    def _planned(
        self, plan: str, scale: str, shifts: int, kept: Mapping[str, int] | None
    ) -> list[PlannedLayer]:
        check_plan(plan, self.plan_layers)
        letters = {layer.name: plan[i] for i, layer in enumerate(self.plan_layers)}
        left = kept or {}
        return [
            PlannedLayer(layer, letters.get(layer.name, "F"), scale, shifts, left.get(layer.name))
            for layer in self.layers
        ]

    def priced(
        self,
        cost: Cost,
        plan: str,
        scale: str = "none",
        shifts: int = 0,
        kept: Mapping[str, int] | None = None,
    ) -> list[float]:
        """One cost of every layer, which need not be registered."""
        assert cost.of_layer is not None
        return [cost.of_layer(layer) for layer in self._planned(plan, scale, shifts, kept)]

    def training_cost(self, plan: str, kept: Mapping[str, int] | None = None) -> BlockCost:
        """The operations for one image in training and evaluation, as Table 6 of robust pruning
        (Liu et al., NeurIPS 2022; docs/methods.md 5.6) counts them: every layer counts as a
        convolution with batch norm and ReLU."""
        return sum(
            (
                block_cost(
                    layer.macs, layer.elements, layer.weights, row.kept / row.weights,
                    BY_LETTER[row.level].weight_bits == 1,
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
        shifts: int = 0,
        kept: Mapping[str, int] | None = None,
    ) -> dict[str, float]:
        """The costs that depend on the plan, by name, with `flops_pct` in percent of this network
        in full precision. (In a search, percentages are of one network for all trials:
        `spaces.space`.)"""
        totals = self._sums(plan, scale, shifts, kept)
        full = self._sums("F" * len(plan), scale, shifts)["flops"]
        totals["flops_pct"] = 100.0 * totals["flops"] / full if full else 100.0
        return totals

    def costs(
        self,
        plan: str,
        scale: str = "none",
        shifts: int = 0,
        kept: Mapping[str, int] | None = None,
    ) -> dict[str, float]:
        """All costs by name: `totals`, and those that are the same for every plan."""
        fixed = {
            name: float(cost.of_rest(self))
            for name, cost in COSTS.items()
            if cost.of_layer is None and cost.of_rest is not None
        }
        return self.totals(plan, scale, shifts, kept) | fixed

    def _sums(
        self, plan: str, scale: str, shifts: int, kept: Mapping[str, int] | None = None
    ) -> dict[str, float]:
        rows = self.rows(plan, scale, shifts, kept)
        sums = {}
        for cost in summed():
            rest = 0.0 if cost.of_rest is None else cost.of_rest(self)
            sums[cost.name] = float(sum(row.costs[cost.name] for row in rows)) + rest
        return sums


def _row(planned: PlannedLayer, counted: Sequence[Cost]) -> LayerCost:
    layer = planned.layer
    return LayerCost(
        name=layer.name,
        kind=layer.kind,
        level=planned.letter,
        planned=layer.planned,
        weights=layer.weights,
        kept=planned.weights,
        macs=layer.macs,
        costs={cost.name: cost.of_layer(planned) for cost in counted if cost.of_layer},
    )


def trace(model: nn.Module, shape: Shape, scope: str = "body") -> CostTable:
    """The cost table of `model` (on the meta device), from one forward pass of one example."""
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    plan = plan_layers(model, scope)
    planned = [layer.name for layer in plan]
    weighted = {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    counter = FlopCounterMode(display=False)
    try:
        with _counted(model, weighted) as seen, _without_gradients(model), counter:
            model(torch.empty(1, *shape, device="meta"))
    except RuntimeError as error:
        raise UserError(f"inputs of shape {tuple(shape)} do not fit the model: {error}") from None
    _all_reached(planned, seen)
    layers = [
        _traced(name, weighted[name], counts, last=name == list(seen)[-1], planned=name in planned)
        for name, counts in seen.items()
    ]
    layers = _with_products(layers, counter.get_flop_counts(), type(model).__name__)
    counted = sum(weighted[name].weight.numel() for name in seen)
    floats = sum(t.numel() for t in model.state_dict().values() if t.is_floating_point())
    return CostTable(
        layers=tuple(layers),
        plan_layers=tuple(plan),
        other_bytes=4 * (floats - counted),
        parameters=sum(p.numel() for p in model.parameters()),
    )


@contextmanager
def _without_gradients(model: nn.Module) -> Iterator[None]:
    """Inside, no parameter has a gradient: torch's counter follows views of those that have, as of
    a class token, and fails."""
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        with torch.no_grad():
            yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@contextmanager
def _counted(
    model: nn.Module, weighted: Mapping[str, nn.Conv2d | nn.Linear]
) -> Iterator[dict[str, tuple[int, int]]]:
    """Inside, forward passes add to (MACs, output elements) per layer in the mapping that is
    yielded, in the order of first use; the model is in evaluation mode."""
    seen: dict[str, tuple[int, int]] = {}

    def record(name: str, layer: nn.Conv2d | nn.Linear, output: Tensor) -> None:
        positions = output.numel() // output.shape[1 if layer.weight.dim() == 4 else -1]
        macs, elements = seen.get(name, (0, 0))
        seen[name] = (macs + positions * layer.weight.numel(), elements + output.numel())

    handles = [
        layer.register_forward_hook(lambda m, _args, out, name=name: record(name, m, out))
        for name, layer in weighted.items()
    ]
    was_training = model.training
    try:
        model.eval()
        yield seen
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()


def _traced(
    name: str, layer: nn.Conv2d | nn.Linear, counts: tuple[int, int], last: bool, planned: bool
) -> LayerTrace:
    conv = layer.weight.dim() == 4
    kind = "conv" if conv else ("classifier" if last else "linear")
    inputs: int = layer.in_channels if conv else layer.in_features  # type: ignore[assignment]
    weight = layer.weight
    return LayerTrace(name, kind, *counts, weight.numel(), weight.shape[0], inputs, planned)


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
    """The layers with rows for products of two activations inserted, each behind the layers of the
    module that computes it. The MACs of a product are what torch counted in the module minus what
    it counted in its submodules."""
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
    name: str,
    params: dict[str, Any],
    shape: Shape,
    classes: int,
    scope: str = "body",
    activations: str = "keep",
) -> CostTable:
    """The cost table of a declared model; cached, since a search needs it for every point."""
    resolved = MODELS.get(name).resolve(params)
    values = tuple(sorted(resolved.items()))
    kept = activations if activations in REPLACEMENTS else "keep"
    return _cached_table(name, values, shape, classes, scope, kept)


@lru_cache(maxsize=512)
def _cached_table(
    name: str,
    params: tuple[tuple[str, Any], ...],
    shape: Shape,
    classes: int,
    scope: str,
    activations: str,
) -> CostTable:
    import torch

    from bitfront.trainables.models.activations import with_activations

    try:
        with torch.device("meta"):
            model = build_model(name, dict(params), shape, classes)
            model = with_activations(model, activations, shape, name)
    except (RuntimeError, OverflowError) as error:  # more weights than can be counted
        reason = first_line(error)
        raise UserError(
            f"model {name} cannot be made for shape {shape} and {classes:,} classes: {reason}"
        ) from None
    return trace(model, shape, scope)


def task_cost_table(task: Task) -> CostTable:
    """The cost table of the network of a task."""
    info = DATASETS.get(task.dataset)
    return cost_table(
        task.model.name,
        task.model.params,
        info.shape,
        info.classes,
        task.binarize,
        task.settled_activations,
    )
