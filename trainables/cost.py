"""The cost table of a network: its costs under any plan, exact and known before training. The
network is traced once on the meta device; the costs of a plan are then sums over its layers. The
conventions, with their equations, are in `costs`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from bitfront.trainables.costs import COSTS, Cost, KeptChannels, LayerTrace, PlannedLayer, summed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.pruning import BlockCost, block_cost
from bitfront.trainables.models import MODELS, Shape
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.plan import BY_LETTER, PlanLayer, binary_layers, check_plan, plan_layers
from bitfront.trainables.settings import REPLACEMENTS, TREATED_INPUTS
from bitfront.trainables.structure.scope import Scope
from bitfront.trainables.task import Task

if TYPE_CHECKING:
    from torch import nn

    from bitfront.trainables.methods.base import Method
    from bitfront.trainables.structure.counting import Counted


# What of a layer makes its network another one, for costs that are looked up.
IDENTIFYING = ("name", "kind", "macs", "elements", "weights", "channels", "inputs", "tied")
# How many costs of layers a table remembers: pruning may leave a layer with any share of its
# weights.
MOST_KNOWN = 20_000

# What pruning leaves of layers, by name: weights, or channels with the weights between them.
Kept = Mapping[str, int | KeptChannels] | None


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
    role: str = ""

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
        kept: Kept = None,
        further: Sequence[Cost] = (),
    ) -> list[LayerCost]:
        """One row per layer. `scale`: how many scales binary layers store; `shifts`: how many
        numbers per input channel layers with binary inputs store; `kept`: what pruning leaves of
        layers, by name; `further`: costs besides the registered ones."""
        counted = [*summed(), *further]
        return [_row(layer, counted) for layer in self._planned(plan, scale, shifts, kept)]

    def _planned(self, plan: str, scale: str, shifts: int, kept: Kept) -> list[PlannedLayer]:
        left = self._left(plan, kept)
        return [
            PlannedLayer(layer, letter, scale, shifts, weights, channels, self.identity)
            for layer, (letter, weights, channels) in zip(self.layers, left, strict=True)
        ]

    def _left(self, plan: str, kept: Kept) -> list[tuple[str, int | None, int | None]]:
        """(letter, weights, output channels) of every layer; None for weights and channels of which
        nothing is removed."""
        check_plan(plan, self.plan_layers)
        letters = {layer.name: plan[i] for i, layer in enumerate(self.plan_layers)}
        found = []
        for layer in self.layers:
            owner = layer.tied or layer.name
            each = kept.get(owner) if kept else None
            weights = each.weights if isinstance(each, KeptChannels) else each
            channels = each.channels if isinstance(each, KeptChannels) else None
            found.append((letters.get(owner, "F"), weights, channels))
        return found

    @cached_property
    def identity(self) -> str:
        """A hash of the layers and their sizes: networks of one identity take the same time,
        whatever they are called."""
        layers = [[getattr(layer, key) for key in IDENTIFYING] for layer in self.layers]
        text = json.dumps([layers, self.parameters, self.other_bytes])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def priced(
        self,
        cost: Cost,
        plan: str,
        scale: str = "none",
        shifts: int = 0,
        kept: Kept = None,
    ) -> list[float]:
        """One cost of every layer, which need not be registered."""
        assert cost.of_layer is not None
        return [cost.of_layer(layer) for layer in self._planned(plan, scale, shifts, kept)]

    def total(
        self,
        cost: Cost,
        plan: str,
        scale: str = "none",
        shifts: int = 0,
        kept: Kept = None,
    ) -> float:
        """One cost of the network, which need not be registered."""
        rest = 0.0 if cost.of_rest is None else float(cost.of_rest(self))
        return sum(self.priced(cost, plan, scale, shifts, kept)) + rest

    def parts(self, plan: str, method: Method, activations: str) -> tuple[str, int, Kept]:
        """(scale, shifts, kept) of a network with this plan, as `costs` and `priced` take them:
        what the method and the treatment of its inputs store."""
        stored = method.shifts_inputs + TREATED_INPUTS.get(activations, 0)
        kept: Kept = method.kept(self.sizes(plan))
        channels = method.kept_channels(self.layers)
        return method.scale, stored, {**(kept or {}), **channels} if channels else kept

    def training_cost(self, plan: str, kept: Kept = None) -> BlockCost:
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
        kept: Kept = None,
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
        kept: Kept = None,
    ) -> dict[str, float]:
        """All costs by name: `totals`, and those that are the same for every plan."""
        fixed = {
            name: float(cost.of_rest(self))
            for name, cost in COSTS.items()
            if cost.of_layer is None and cost.of_rest is not None
        }
        return self.totals(plan, scale, shifts, kept) | fixed

    def _sums(self, plan: str, scale: str, shifts: int, kept: Kept = None) -> dict[str, float]:
        counted, known = summed(), self._known
        layers = []
        for place, (letter, weights, channels) in enumerate(self._left(plan, kept)):
            key = (place, letter, scale, shifts, weights, channels)
            if key not in known:
                if len(known) >= MOST_KNOWN:
                    known.clear()
                known[key] = _costs(PlannedLayer(self.layers[place], *key[1:]), counted)
            layers.append(known[key])
        sums = {}
        for cost in counted:
            rest = 0.0 if cost.of_rest is None else cost.of_rest(self)
            sums[cost.name] = float(sum(costs[cost.name] for costs in layers)) + rest
        return sums

    @cached_property
    def _known(self) -> dict[tuple[Any, ...], Mapping[str, float]]:
        """The costs of layers that were counted before. A search prices thousands of plans, in
        which a layer has one of a few levels."""
        return {}


def _costs(planned: PlannedLayer, counted: Sequence[Cost]) -> dict[str, float]:
    """The costs of a layer by name."""
    return {cost.name: cost.of_layer(planned) for cost in counted if cost.of_layer}


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
        costs=_costs(planned, counted),
        role=layer.role,
    )


def trace(
    model: nn.Module,
    shape: Shape,
    scope: Scope = "body",
    keep_full: Sequence[str] = (),
    by_names: bool = True,
) -> CostTable:
    """The cost table of `model`, from one forward pass of one example. `by_names`: which layers a
    plan decides follows from their names; otherwise from the way the example takes."""
    import torch

    from bitfront.trainables.structure.counting import count

    device = next((p.device for p in model.parameters()), torch.device("meta"))
    try:
        counted = count(model, torch.zeros(1, *shape, device=device), by_names)
    except RuntimeError as error:
        raise UserError(f"inputs of shape {tuple(shape)} do not fit the model: {error}") from None
    return table_of(counted, scope, keep_full)


def table_of(counted: Counted, scope: Scope, keep_full: Sequence[str] = ()) -> CostTable:
    """The cost table of a network that an example has passed through."""
    planned = counted.planned(scope, keep_full)
    layers = counted.layers(planned)
    return CostTable(
        layers=tuple(layers),
        plan_layers=tuple(planned),
        other_bytes=counted.other_bytes(layers),
        parameters=sum(p.numel() for p in counted.model.parameters()),
    )


def cost_table(
    name: str,
    params: dict[str, Any],
    shape: Shape,
    classes: int,
    scope: Scope = "body",
    *,
    activations: str = "keep",
    keep_full: Sequence[str] = (),
    integers: bool | None = None,
    axes: bool = False,
) -> CostTable:
    """The cost table of a declared model or one of the user's own; cached, since a search needs it
    for every point. `integers`: examples are integers; None: not known, a network that takes no
    floats gets integers. `axes`: outputs may have further axes."""
    values = json.dumps(MODELS.get(name).resolve(params), sort_keys=True)
    kept = activations if activations in REPLACEMENTS else "keep"
    chosen = scope if isinstance(scope, str) else tuple(scope)
    given = (name, values, tuple(shape), classes, chosen, kept, tuple(keep_full), integers, axes)
    return _cached_table(*given)


@lru_cache(maxsize=512)
def _cached_table(
    name: str,
    params: str,
    shape: Shape,
    classes: int,
    scope: Scope,
    activations: str,
    keep_full: tuple[str, ...],
    integers: bool | None,
    axes: bool,
) -> CostTable:
    values = json.loads(params)
    if is_reference(name):
        from bitfront.trainables.models.own import counted_own

        counted = counted_own(name, values, shape, classes, activations, integers, axes)
        return table_of(counted, scope, keep_full)
    from bitfront.trainables.models.building import unreal_model

    model = unreal_model(name, values, shape, classes, activations)
    return trace(model, shape, scope, keep_full)


def task_cost_table(task: Task) -> CostTable:
    """The cost table of the network of a task."""
    info = DATASETS.get(task.dataset)
    return cost_table(
        task.model.name,
        task.model.params,
        info.shape,
        info.classes,
        task.binarize,
        activations=task.settled_activations,
        keep_full=task.keep_full,
        integers=info.integers,
        axes=info.has_axes,
    )


def task_plan_layers(task: Task, model: nn.Module) -> list[PlanLayer]:
    """The layers that a plan decides in `model`, a network of the task."""
    if is_reference(task.model.name):
        return list(task_cost_table(task).plan_layers)
    return plan_layers(model, task.binarize, task.keep_full)
