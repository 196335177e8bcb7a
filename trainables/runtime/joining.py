"""Kernels of a traced network joined to chains (`chains`). The network is cut into stages: what
torch computes of a stage comes first, then one chain with all kernels that need nothing of later
stages."""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import Any

from torch import fx

from bitfront.trainables.runtime.chains import Chain, Link, Links
from bitfront.trainables.runtime.layers import Finished

IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.setitem)


def joined(traced: fx.GraphModule) -> fx.GraphModule:
    """The network with a chain per stage. A network that writes to values which are read elsewhere
    keeps its order, and every kernel is a chain of its own."""
    modules = dict(traced.named_modules())
    layers = {
        node: module
        for node in traced.graph.nodes
        if node.op == "call_module" and isinstance(module := modules[str(node.target)], Finished)
    }
    stages = _stages(traced, layers)
    if stages is None:
        traced.recompile()
        return traced
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    by_stage: dict[int, tuple[list[fx.Node], list[fx.Node]]] = defaultdict(lambda: ([], []))
    for node, stage in stages.items():
        by_stage[stage][node in layers].append(node)
    for stage in sorted(by_stage):
        torchs, kernels = by_stage[stage]
        for node in torchs:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        if kernels:
            _chain(traced, graph, f"chain{stage}", {node: layers[node] for node in kernels}, copies)
    graph.lint()
    return fx.GraphModule(traced, graph)


def _stages(traced: fx.GraphModule, layers: dict[fx.Node, Finished]) -> dict[fx.Node, int] | None:
    """The stage of every node; None where their order matters."""
    modules = dict(traced.named_modules())
    found: dict[fx.Node, int] = {}
    for node in traced.graph.nodes:
        if node not in layers and _writes(node, modules):
            return None
        found[node] = max(
            (found[given] + _apart(given, node, layers) for given in node.all_input_nodes),
            default=0,
        )
    last = max(found.values(), default=0) + 1
    return {node: last if node.op == "output" else stage for node, stage in found.items()}


def _apart(given: fx.Node, node: fx.Node, layers: dict[fx.Node, Finished]) -> bool:
    """Whether a node belongs to a later stage than one whose value it reads."""
    if given not in layers:
        return False
    return node not in layers or layers[node].dimensions != layers[given].dimensions


def _writes(node: fx.Node, modules: dict[str, Any]) -> bool:
    """Whether a node writes to a value that another one reads."""
    if node.op == "call_module":
        writes = bool(getattr(modules[str(node.target)], "inplace", False))
    elif node.op == "call_method":
        name = str(node.target)
        writes = name.endswith("_") and not name.endswith("__")
    else:
        inplace = node.kwargs.get("inplace", False) or "out" in node.kwargs
        writes = node.op == "call_function" and (node.target in IN_PLACE or bool(inplace))
    return writes and any(len(given.users) > 1 for given in node.all_input_nodes)


def _chain(
    traced: fx.GraphModule,
    graph: fx.Graph,
    name: str,
    layers: dict[fx.Node, Finished],
    copies: dict[fx.Node, fx.Node],
) -> None:
    """Add a chain of these layers to the graph, and what it gives to `copies`."""
    dimensions = {node: layer.dimensions for node, layer in layers.items()}
    given: dict[tuple[fx.Node, int], int] = {}
    for node in layers:
        for value in _read(node):
            if value not in layers:
                given.setdefault((value, dimensions[node]), len(given))
    made = {node: len(given) + number for number, node in enumerate(layers)}
    links = []
    for node, layer in layers.items():
        values = [
            made[value] if value in made else given[value, dimensions[node]]
            for value in _read(node)
        ]
        links.append(Link(layer, *values))
    outputs = [node for node in layers if any(user not in layers for user in node.users)]
    traced.add_submodule(name, Chain(Links(links, len(given), [made[node] for node in outputs])))
    call = graph.call_module(name, tuple(copies[value] for value, _ in given))
    for number, node in enumerate(outputs):
        one = len(outputs) == 1
        copies[node] = call if one else graph.call_function(operator.getitem, (call, number))


def _read(node: fx.Node) -> list[fx.Node]:
    """The values that a layer reads: its input, and what a shortcut brings."""
    return [value for value in node.args if isinstance(value, fx.Node)]
