"""Follows one example through a network: which layers are called, in which order, and from which
other layers each of them gets its input. Every operation of torch is seen, so that it does not
matter how the network is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bitfront.trainables.structure.attention import OUTPUT, projections
from bitfront.trainables.structure.kinds import LAYERS, macs_of

# The source of what comes from the network's input and from no layer; calls are counted from 0.
INPUT = -1
Sources = frozenset[int]
# Modules with weights that no plan decides: what comes out of them is not the network's input.
_OTHERS = (nn.RNNBase, nn.RNNCellBase, nn.Bilinear, nn.Embedding, nn.EmbeddingBag)
_SUMS = ("add", "add_")


@dataclass
class Call:
    """One use of a layer. `sources`: the calls its input comes from, without other layers between;
    `layer`: its name, '' for a module with weights that no plan decides."""

    layer: str
    sources: Sources
    macs: int = 0
    elements: int = 0


@dataclass
class Flow:
    """What was seen of one forward pass."""

    calls: list[Call] = field(default_factory=list)
    sums: list[tuple[Sources, Sources]] = field(default_factory=list)
    """the sources of the two terms of every sum"""
    output: Sources = frozenset()
    """the sources of the network's output"""

    def ancestors(self) -> list[Sources]:
        """All calls that each call depends on."""
        found: list[Sources] = []
        for call in self.calls:
            before = call.sources - {INPUT}
            found.append(before.union(*(found[c] for c in before)))
        return found


class _Watch(TorchDispatchMode):
    """Notes for every storage from which calls its content comes. Storages and not tensors, so that
    views and changes in place are seen."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flow = flow
        self._sources: dict[int, Sources] = {}
        self._kept: dict[int, Any] = {}  # alive, so that no address is used twice

    def of(self, *things: Any) -> Sources:
        """The sources of all tensors in these arguments or results."""
        found = (self._sources.get(_address(t), frozenset()) for t in _tensors(things))
        return frozenset().union(*found)

    def note(self, things: Any, sources: Sources, add: bool = False) -> None:
        for tensor in _tensors(things):
            address = _address(tensor)
            self._kept[address] = tensor.untyped_storage()
            known = self._sources.get(address, frozenset()) if add else frozenset()
            self._sources[address] = known | sources

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        sources = self.of(args, kwargs)
        if func._schema.name.removeprefix("aten::") in _SUMS and len(args) > 1:
            terms = self.of(args[0]), self.of(args[1])
            if all(terms):
                self.flow.sums.append(terms)
        out = func(*args, **kwargs)
        self.note(out, sources, add=True)
        return out


def _tensors(things: Any) -> list[Tensor]:
    return [t for t in tree_leaves(things) if isinstance(t, Tensor)]


def _address(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


@contextmanager
def plain_attention() -> Iterator[None]:
    """Inside, torch computes attentions by single operations, in which layers are called."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def follow(
    model: nn.Module, x: Tensor, kinds: tuple[type[nn.Module], ...] = LAYERS, watched: bool = True
) -> tuple[Any, Flow]:
    """(output, what was seen) of a forward pass in evaluation mode. `kinds`: the modules that are
    layers; without `watched` their calls are counted, and nothing is known of their sources."""
    flow = Flow()
    watch = _Watch(flow)
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            handles += _watch_attention(watch, name, module)
        elif isinstance(module, kinds + _OTHERS):
            known = isinstance(module, kinds) and isinstance(module.weight, Tensor)
            handles += _watch_layer(watch, name if known else "", module)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), plain_attention(), watch if watched else nullcontext():
            watch.note(x, frozenset({INPUT}))
            out = model(x)
            flow.output = watch.of(out)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return out, flow


def _watch_layer(watch: _Watch, name: str, module: nn.Module) -> list[Any]:
    waiting: list[Sources] = []

    def before(_module: nn.Module, args: Any, kwargs: Any) -> None:
        given = _tensors((args, kwargs))
        if name and given and not given[0].is_floating_point():  # which the meta device lets pass
            raise TypeError(f"layer {name} takes floats and gets {given[0].dtype}")
        waiting.append(watch.of(args, kwargs))

    def after(_module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        call = Call(name, waiting.pop())
        inputs, outputs = _tensors((args, kwargs)), _tensors(out)
        if name and inputs and outputs:
            weight: Tensor = module.weight  # type: ignore[assignment]
            call.macs = macs_of(module, inputs[0], outputs[0], weight.numel())
            call.elements = outputs[0].numel()
        watch.flow.calls.append(call)
        watch.note(out, frozenset({len(watch.flow.calls) - 1}))

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]


def _watch_attention(watch: _Watch, name: str, module: nn.MultiheadAttention) -> list[Any]:
    """Every call of an attention is a call of each of its projections: those of its inputs, then
    that of its output, which gets its input from the others."""
    layers = projections(module)
    waiting: list[Sources] = []

    def before(_module: nn.Module, args: Any, kwargs: Any) -> None:
        waiting.append(watch.of(args, kwargs))

    def after(_module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        given = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
        sources, calls = waiting.pop(), watch.flow.calls
        first = len(calls)
        for leaf, weight in layers.items():
            if leaf == OUTPUT:
                continue
            parts = weight.shape[0] // 3 if leaf == "in_proj" else weight.shape[0]
            words = {"in_proj": ("query", "key", "value"), "q_proj": ("query",)}
            words |= {"k_proj": ("key",), "v_proj": ("value",)}
            rows = sum(given[w].numel() // given[w].shape[-1] for w in words[leaf])
            macs, elements = rows * parts * weight.shape[1], rows * parts
            calls.append(Call(f"{name}.{leaf}".lstrip("."), sources, macs, elements))
        sources = frozenset(range(first, len(calls))) or sources
        if OUTPUT in layers:
            rows = out[0].numel() // module.embed_dim
            macs, elements = rows * layers[OUTPUT].numel(), out[0].numel()
            calls.append(Call(f"{name}.{OUTPUT}".lstrip("."), sources, macs, elements))
            sources = frozenset({len(calls) - 1})
        watch.note(out, sources)

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]
