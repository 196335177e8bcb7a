"""Layers behind a binary one that its kernel computes along with it: batch norm, activation and the
sum with a shortcut; and those behind one in full precision, as a step of their own between kernels.
The network is traced by torch.fx, and its kernels are joined to chains (`joining`); where that
fails, its binary layers are replaced one by one (`network`)."""

from __future__ import annotations

import io
import operator
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from bitfront.trainables.models.activations import BinReLU, RPReLU
from bitfront.trainables.runtime.chains import PackedLayer
from bitfront.trainables.runtime.joining import joined
from bitfront.trainables.runtime.kernels.outputs import Operation
from bitfront.trainables.runtime.layers import Finished, Floats, Program

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
SUMS = (operator.add, operator.iadd, torch.add)


class _Tracer(fx.Tracer):
    """Modules of ours that are fused stay whole, as those of torch do."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        ours = isinstance(m, PackedLayer | BinReLU | RPReLU)
        return ours or super().is_leaf_module(m, module_qualified_name)


def _norm(program: Program, norm: Any) -> None:
    """y a + b with a = w / sqrt(var + eps) and b = bias - mean a, each rounded as torch does: by
    rsqrt, and in one rounding."""
    inverse = torch.rsqrt(norm.running_var + norm.eps)
    a = inverse if norm.weight is None else inverse * norm.weight
    bias = torch.zeros_like(a) if norm.bias is None else norm.bias
    b = (bias.double() - norm.running_mean.double() * a.double()).float()
    program.add(Operation.LINEAR, a, b)


def _rprelu(program: Program, module: Any) -> None:
    program.add(Operation.SUBTRACT, module.before)
    program.add(Operation.PRELU, module.prelu.weight)
    program.add(Operation.ADD, module.after)


def _hardtanh(program: Program, module: Any) -> None:
    program.add(Operation.AT_LEAST, float(module.min_val))
    program.add(Operation.AT_MOST, float(module.max_val))


# What each module of these types does to a program. ReLU6 is a Hardtanh.
FUSED: dict[type[nn.Module], Callable[[Program, Any], None]] = {
    **dict.fromkeys(NORMS, _norm),
    nn.ReLU: lambda program, _: program.add(Operation.AT_LEAST, 0.0),
    BinReLU: lambda program, _: program.add(Operation.AT_LEAST, -1.0),
    nn.Hardtanh: _hardtanh,
    nn.ReLU6: _hardtanh,
    nn.PReLU: lambda program, module: program.add(Operation.PRELU, module.weight),
    RPReLU: _rprelu,
}


@torch.no_grad()
def fused(network: nn.Module, example: Tensor) -> fx.GraphModule:
    """The network, whose binary layers are `PackedLayer`s, with what follows them fused, in chains.
    Raises whatever torch.fx raises for a network it cannot trace."""
    traced = fx.GraphModule(network, _Tracer().trace(network))
    with redirect_stderr(io.StringIO()):  # it prints what it raises
        ShapeProp(traced).propagate(example)
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and type(modules[str(node.target)]) in NOTHING:
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    for node in list(traced.graph.nodes):
        layer = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(layer, PackedLayer) and len(_callers(traced, node.target)) == 1:
            _fuse(traced, node, layer, modules)
    for number, node in enumerate(list(traced.graph.nodes)):
        if node.op == "call_module" and type(modules.get(str(node.target))) in NORMS:
            _replace(traced, node, f"floats{number}", modules)
    traced.graph.eliminate_dead_code()
    return joined(traced)


def _callers(traced: fx.GraphModule, target: Any) -> list[fx.Node]:
    return [node for node in traced.graph.nodes if node.target == target]


def _follow(
    node: fx.Node, layer: Finished, modules: dict[str, nn.Module]
) -> tuple[fx.Node, fx.Node | None]:
    """Add to the layer's program what follows it, as far as it goes: the last node of that, and the
    one that brings a shortcut."""
    last, residual = node, None
    while len(last.users) == 1:
        (after,) = last.users
        module = modules.get(str(after.target)) if after.op == "call_module" else None
        if module is not None and type(module) in FUSED and _fits(module, layer, last):
            FUSED[type(module)](layer.program, module)
        elif residual is None and _is_sum(after, last):
            residual = next(arg for arg in after.all_input_nodes if arg is not last)
            layer.program.add(Operation.RESIDUAL)
        else:
            break
        last = after
    return last, residual


def _fuse(
    traced: fx.GraphModule, node: fx.Node, layer: PackedLayer, modules: dict[str, nn.Module]
) -> None:
    """Call the layer, with all that follows it, in place of the last of these."""
    last, residual = _follow(node, layer, modules)
    if last is not node:
        _call(traced, last, str(node.target), node.args[0], residual)


def _replace(
    traced: fx.GraphModule, node: fx.Node, name: str, modules: dict[str, nn.Module]
) -> None:
    """Compute a batch norm of images whose channels come last, and what follows it, as `Floats`."""
    (before,) = node.all_input_nodes
    meta = before.meta.get("tensor_meta")
    if meta is None or meta.memory_format is not torch.channels_last or node.kwargs:
        return
    norm: Any = modules[str(node.target)]
    layer = Floats(norm.num_features, len(meta.shape))
    if meta.dtype is not torch.float32 or not _fits(norm, layer, before):
        return
    _norm(layer.program, norm)
    last, residual = _follow(node, layer, modules)
    traced.add_submodule(name, layer)
    modules[name] = layer
    _call(traced, last, name, before, residual)


def _call(
    traced: fx.GraphModule, last: fx.Node, name: str, source: Any, residual: fx.Node | None
) -> None:
    with traced.graph.inserting_before(last):
        again = traced.graph.call_module(name, (source, residual))
    again.meta = dict(last.meta)
    last.replace_all_uses_with(again)


def _fits(module: nn.Module, layer: Finished, before: fx.Node) -> bool:
    """Whether a module treats the channels of the layer as the kernel would."""
    if isinstance(module, NORMS):
        whole = module.num_features == layer.channels and module.running_var is not None
        return whole and before.meta["tensor_meta"].shape[1] == layer.channels
    if isinstance(module, nn.PReLU | RPReLU):
        shape = before.meta["tensor_meta"].shape
        return len(shape) > 1 and shape[1] == layer.channels
    return True


def _is_sum(node: fx.Node, part: fx.Node) -> bool:
    """Whether a node is the plain sum of `part` and another tensor of the same shape and layout."""
    if node.target not in SUMS or node.kwargs or len(node.args) != 2:
        return False
    other = next((arg for arg in node.args if arg is not part), None)
    if not isinstance(other, fx.Node) or "tensor_meta" not in other.meta:
        return False
    one, two = part.meta["tensor_meta"], other.meta["tensor_meta"]
    return (one.shape, one.dtype, one.memory_format) == (two.shape, two.dtype, two.memory_format)
