"""Counts the layers of a network in a forward pass of one example, and finds out what they are for.
The costs of a plan are computed from these counts in `cost`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bitfront.trainables.costs import LayerTrace
from bitfront.trainables.errors import UserError
from bitfront.trainables.plan import PlanLayer, plan_layers
from bitfront.trainables.structure.attention import projections
from bitfront.trainables.structure.flow import Flow, follow
from bitfront.trainables.structure.kinds import LAYERS, USUAL, inputs_of, outputs_of
from bitfront.trainables.structure.roles import Found, find_layers, with_roles
from bitfront.trainables.structure.scope import LAST, Scope

# Counters of batch norms, which no packed checkpoint holds.
COUNTERS = "num_batches_tracked"


@dataclass(frozen=True)
class Counted:
    """A network after one example has passed through it."""

    model: nn.Module
    flow: Flow
    operations: dict[str, dict[Any, int]]
    """what torch counted, by module"""
    output: Any
    found: Found | None
    """the layers and their roles; None where names decide (networks of ours and of libraries)"""

    def planned(self, scope: Scope, keep_full: Sequence[str]) -> list[PlanLayer]:
        """The layers a plan decides."""
        if self.found is None or callable(getattr(self.model, "plan_layers", None)):
            layers = plan_layers(self.model, scope, keep_full)
            _all_reached(layers, self.flow)
            return layers
        return self.found.plan_layers(scope, keep_full)

    def layers(self, planned: Sequence[PlanLayer]) -> list[LayerTrace]:
        """A row for every layer that is called, in the order of first use, and for every product
        of two activations."""
        known = sites(self.model)
        names = {name for layer in planned for name in (layer.name, *layer.tied)}
        roles = {} if self.found is None else with_roles(self.found, planned)
        owners = {} if self.found is None else self.found.owners
        counts: dict[str, tuple[int, int]] = {}
        for call in self.flow.calls:
            if call.layer:
                macs, elements = counts.get(call.layer, (0, 0))
                counts[call.layer] = (macs + call.macs, elements + call.elements)
        rows = []
        ends = {n for n, role in self.found.roles.items() if role == LAST} if self.found else set()
        ends = ends or set(list(counts)[-1:])
        for name, (macs, elements) in counts.items():
            site = known[name]
            kind = "conv" if len(site.weight) > 2 else "classifier" if name in ends else "linear"
            sizes = (math.prod(site.weight), site.outputs, site.inputs)
            role, owner = roles.get(name, ""), owners.get(name, "")
            row = LayerTrace(name, kind, macs, elements, *sizes, name in names, role, owner)
            rows.append(row)
        return _with_products(rows, self.operations, self.model)

    def other_bytes(self, layers: Sequence[LayerTrace]) -> int:
        """The bytes of the packed checkpoint that are not weights of these layers: 4 for every
        other number in full precision, and the size of other tensors."""
        state = self.model.state_dict(keep_vars=True)
        tensors = {id(t): (n, t) for n, t in state.items() if isinstance(t, Tensor)}
        size = -4 * sum(layer.weights for layer in layers if not layer.tied)
        for name, tensor in tensors.values():
            if tensor.is_floating_point():
                size += 4 * tensor.numel()
            elif not name.endswith(COUNTERS):
                size += tensor.element_size() * tensor.numel()
        return size


def count(model: nn.Module, x: Tensor, by_names: bool) -> Counted:
    """The network after `x`, one example, has passed through it. `by_names`: which layers a plan
    decides follows from their names, as in networks of libraries, not from the way of the
    example."""
    counter = FlopCounterMode(display=False)
    with _without_gradients(model), counter:
        if by_names:
            out, flow = follow(model, x, USUAL, watched=False)
        else:
            out, flow = follow(model, x, LAYERS)
    found = None if by_names else find_layers(model, flow)
    return Counted(model, flow, counter.get_flop_counts(), out, found)


@contextmanager
def _without_gradients(model: nn.Module) -> Iterator[None]:
    """Inside, no parameter has a gradient: torch's counter follows views of those that have, as of
    a class token, and fails."""
    trained = [p for p in model.parameters() if p.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        with torch.no_grad():
            yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@dataclass(frozen=True)
class Site:
    """A weight that a plan may decide: its shape, and what has it."""

    weight: tuple[int, ...]
    outputs: int
    inputs: int
    kind: str


def sites(model: nn.Module) -> dict[str, Site]:
    """The weights of all layers by name."""
    found: dict[str, Site] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            for leaf, weight in projections(module).items():
                outputs, inputs = weight.shape
                site = Site((outputs, inputs), outputs, inputs, "MultiheadAttention")
                found[f"{name}.{leaf}".lstrip(".")] = site
        elif isinstance(module, LAYERS) and isinstance(module.weight, Tensor):
            shape, kind = tuple(module.weight.shape), type(module).__name__
            found.setdefault(name, Site(shape, outputs_of(module), inputs_of(module), kind))
    return found


def _all_reached(planned: Sequence[PlanLayer], flow: Flow) -> None:
    seen = {call.layer for call in flow.calls}
    missed = [layer.name for layer in planned if layer.name not in seen]
    if missed:
        others = {layer.name.rpartition(".")[2] for layer in planned if layer.name in seen}
        patterns = dict.fromkeys(_pattern(name, others) for name in missed)
        raise UserError(
            f"layer {missed[0]} is read by its network without being called, so that no plan can "
            "make it binary",
            f"keep such layers in full precision: task.keep_full: [{', '.join(patterns)}]",
        )


def _pattern(name: str, others: set[str]) -> str:
    """A pattern for the layers that are called like this one in their blocks; its whole name where
    one of the `others` is called so too."""
    holder, _, last = name.rpartition(".")
    return name if not holder or last in others else f"'*.{last}'"


def _with_products(
    layers: list[LayerTrace], counts: dict[str, dict[Any, int]], model: nn.Module
) -> list[LayerTrace]:
    """The layers with rows for products of two activations inserted, each behind the layers of the
    module that computes it. The MACs of a product are what torch counted in the module minus what
    it counted in its submodules."""
    root = type(model).__name__
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
    known = {layer.name: layer for layer in layers}
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention) and name in own:
            read = (f"{name}.{leaf}".lstrip(".") for leaf in projections(module))
            own[name] -= 2 * sum(known[each].macs for each in read if each in known)
    rows = list(layers)
    for name, found in own.items():
        if found > 0 and name not in known:
            behind = [i for i, row in enumerate(rows) if row.name.startswith(f"{name}.")]
            product = LayerTrace(f"{name}.product", "product", found // 2, 0, 0, 0, 0, False)
            rows.insert(behind[-1] + 1 if behind else len(rows), product)
    return rows
