"""What each layer of a network is for: the first, the last, a shortcut, or one of its body. Worked
out from the way an example takes through the network (`flow`), not from names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.plan import PlanLayer, block_and_stage
from bitfront.trainables.structure.attention import PARAMETERS
from bitfront.trainables.structure.flow import INPUT, Flow, Sources
from bitfront.trainables.structure.kinds import LAYERS, groups_of, has_weight
from bitfront.trainables.structure.scope import BODY, FIRST, LAST, SHORTCUT, Scope, matching


@dataclass(frozen=True)
class Found:
    """The layers of a network, in the order in which they are first called."""

    roles: dict[str, str]
    owners: dict[str, str]
    """layers that share the weight of one that is called before them, and that one"""
    fixed: dict[str, str]
    """layers that no plan can decide, and why"""

    def plan_layers(self, scope: Scope, keep_full: Sequence[str] = ()) -> list[PlanLayer]:
        """The layers a plan decides: those of the scope but those of `keep_full`. Layers that share
        a weight are one layer of a plan; it is in the body if all of them are."""
        names = [*self.roles, *self.fixed]
        if not isinstance(scope, str):
            chosen = matching(names, scope, "binarize")
            for name in sorted(chosen & set(self.fixed)):
                if name in scope:  # by a pattern, it may be meant by chance
                    raise UserError(
                        f"binarize: layer {name} {self.fixed[name]}", "leave it out of the list"
                    )
        else:
            chosen = {n for n, role in self.roles.items() if scope == "all" or role == BODY}
        full = matching(names, keep_full, "keep_full")
        layers = []
        for name in self.roles:
            together = self.together(name)
            named = not isinstance(scope, str)
            meant = any if named else all
            if name in self.owners or not meant(each in chosen for each in together):
                continue
            if not full & set(together):
                last = name.rpartition(".")[2]
                layers.append(
                    PlanLayer(
                        name,
                        *block_and_stage(name),
                        tied=tuple(together[1:]),
                        accumulates=last not in PARAMETERS.values(),
                    )
                )
        return layers

    def together(self, name: str) -> list[str]:
        """The layer and those that share its weight."""
        return [name, *(other for other, owner in self.owners.items() if owner == name)]


def find_layers(model: nn.Module, flow: Flow) -> Found:
    """The layers of a network and their roles, after an example was followed through it."""
    called = list(dict.fromkeys(call.layer for call in flow.calls if call.layer))
    found = dict.fromkeys(called, BODY)
    for role, calls in ((SHORTCUT, shortcuts(flow)), (LAST, last(flow)), (FIRST, first(flow))):
        found |= {flow.calls[c].layer: role for c in calls if flow.calls[c].layer}
    owners, mixed = _shared(model, called)
    fixed = _undecided(model, called) | mixed
    roles = {name: role for name, role in found.items() if name not in fixed}
    return Found(roles, owners, fixed)


def first(flow: Flow) -> list[int]:
    """The calls that take the network's input; where none can be told, the first one."""
    found = [c for c, call in enumerate(flow.calls) if call.sources == {INPUT}]
    seen = any(INPUT in call.sources for call in flow.calls)
    return found if seen else [c for c, call in enumerate(flow.calls) if call.layer][:1]


def last(flow: Flow) -> list[int]:
    """The calls whose output is that of the network: of those it comes from, the ones that no other
    of them depends on. Where none can be told, the last one."""
    ends = flow.output - {INPUT}
    if not ends:
        return [c for c, call in enumerate(flow.calls) if call.layer][-1:]
    ancestors = flow.ancestors()
    before: Sources = frozenset().union(*(ancestors[c] for c in ends))
    return sorted(ends - before)


def shortcuts(flow: Flow) -> list[int]:
    """The calls on a branch of their own: their output is added to that of a longer branch, of two
    layers or more, that begins where they begin. A call that the longer branch itself comes from
    is none: an identity leads from its output to the sum."""
    ancestors = flow.ancestors()
    found = set()
    for terms in flow.sums:
        for short, long in (terms, terms[::-1]):
            if len(short) != 1 or INPUT in short:
                continue
            (call,) = short
            begin = flow.calls[call].sources
            beside = (c for c in long - {INPUT, call} if call not in ancestors[c])
            if any(_is_longer(flow, ancestors, begin, end) for end in beside):
                found.add(call)
    return sorted(found)


def _is_longer(flow: Flow, ancestors: list[Sources], begin: Sources, end: int) -> bool:
    """Whether the branch that ends with the call `end` leaves from `begin` and has two layers or
    more."""
    if flow.calls[end].sources == begin:
        return False
    inner = [c for c in ancestors[end] if flow.calls[c].sources == begin]
    return bool(inner) and bool(begin)


def _shared(model: nn.Module, called: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """({layer: the one whose weight it shares}, {layer that no plan can decide: why})."""
    modules = dict(model.named_modules())
    by_weight: dict[int, list[str]] = {}
    for name in called:
        weight = modules[name]._parameters.get("weight") if name in modules else None
        if weight is not None:
            by_weight.setdefault(id(weight), []).append(name)
    owners: dict[str, str] = {}
    mixed: dict[str, str] = {}
    others = {
        id(tensor): name
        for name, module in modules.items()
        for tensor in module._parameters.values()
        if tensor is not None and name not in called
    }
    for address, names in by_weight.items():
        if len({groups_of(modules[name]) for name in names}) > 1:
            mixed |= dict.fromkeys(names, f"shares its weight with {names[-1]} in another layout")
        elif address in others:
            mixed |= dict.fromkeys(names, f"shares its weight with {others[address]}, no layer")
        owners |= dict.fromkeys(names[1:], names[0])
    return {n: owner for n, owner in owners.items() if n not in mixed}, mixed


def _undecided(model: nn.Module, called: list[str]) -> dict[str, str]:
    """Layers that the example did not pass, or whose weight is computed from others."""
    found = {}
    for name, module in model.named_modules():
        if not isinstance(module, LAYERS):
            continue
        if not has_weight(module):
            found[name] = "has a weight that is computed from other parameters"
        elif name not in called:
            found[name] = "is not called when an example passes through the network"
    return found


def with_roles(found: Found, planned: Sequence[PlanLayer]) -> dict[str, str]:
    """What the table of costs calls every layer: `planned`, or why it stays in full precision."""
    names = {name for layer in planned for name in (layer.name, *layer.tied)}
    return {
        name: ("planned" if name in names else "kept full" if role == BODY else role)
        for name, role in found.roles.items()
    }
