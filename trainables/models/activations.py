"""Activations of partly binary networks (docs/methods.md 4.1, 4.6)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.models.base import Shape, parameter
from bitfront.trainables.parameters import Choice
from bitfront.trainables.settings import REPLACEMENTS

ACTIVATION = parameter(
    "binrelu",
    Choice(("binrelu", "relu", "hardtanh", "identity", "rprelu")),
    "between layers; binrelu is max(x, -1)",
)


class _MaxWithMinusOne(torch.autograd.Function):
    """max(x, -1). For the backward pass it keeps its output, which the next layer keeps anyway, so
    that it needs no memory of its own. The backward pass is differentiable, since HAWQ needs second
    derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.clamp_min(-1.0)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, out, -1.0)


class BinReLU(nn.Module):
    """BinReLU(x) = max(x, -1) of MixBin: its gradient is 1 for x > -1, else 0, and negative inputs
    keep their sign (docs/methods.md 4.1)."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _MaxWithMinusOne.apply(x)
        return out


class RPReLU(nn.Module):
    """RPReLU of ReActNet (docs/methods.md 1.8): f(x) = x - g_c + z_c for x > g_c, else
    b_c (x - g_c) + z_c, with g (`before`), z (`after`) and b learned per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before = nn.Parameter(torch.zeros(channels))
        self.after = nn.Parameter(torch.zeros(channels))
        self.prelu = nn.PReLU(channels, init=0.25)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1) + (1,) * (x.dim() - 2)
        out: Tensor = self.prelu(x - self.before.view(shape)) + self.after.view(shape)
        return out


def activation(name: str, channels: int) -> nn.Module:
    """The activation of that name for so many channels."""
    simple: dict[str, type[nn.Module]] = {
        "binrelu": BinReLU,
        "relu": nn.ReLU,
        "hardtanh": nn.Hardtanh,
        "identity": nn.Identity,
    }
    return RPReLU(channels) if name == "rprelu" else simple[name]()


# The activations of networks that were not written for binary inputs. timm has classes of its own
# for some of torch's.
_REPLACED = {
    *("ReLU", "ReLU6", "SiLU", "GELU", "Hardswish", "Mish"),
    *("Swish", "HardSwish", "HardMish", "GELUTanh", "QuickGELU"),
}


class ByChannels(nn.ModuleDict):
    """An RPReLU for every number of channels that one activation module of the network is used
    with. `last`: channels are the last dimension of its input, not the second one."""

    def __init__(self, used: set[tuple[int, bool]]) -> None:
        super().__init__({str(channels): RPReLU(channels) for channels, _ in sorted(used)})
        self.last = {str(channels) for channels, last in used if last}

    def forward(self, x: Tensor) -> Tensor:
        key = str(x.shape[-1])
        out: Tensor
        if key in self.last:
            out = self[key](x.transpose(1, -1)).transpose(1, -1)
        else:
            out = self[str(x.shape[1])](x)
        return out


def with_activations(network: nn.Module, activations: str, shape: Shape, called: str) -> nn.Module:
    """The network with its activations replaced, in place, as `task.activations` says; as it is for
    the choices that are no replacements (`layers.treatments`)."""
    if activations in REPLACEMENTS:
        replace_activations(network, activations, shape, called)
    return network


def replace_activations(network: nn.Module, name: str, shape: Shape, called: str) -> None:
    """Put the activation of that name in place of every ReLU, GELU, SiLU and the like that is a
    module of the network, in place."""
    found = [path for path, module in network.named_modules() if type(module).__name__ in _REPLACED]
    if not found:
        raise UserError(
            f"task.activations: {called} has no activation modules that {name} could replace",
            "norm and shift do without: they treat the inputs of binary layers",
        )
    used = _channels(network, found, shape) if name == "rprelu" else {}
    for path in found:
        made = ByChannels(used[path]) if name == "rprelu" else activation(name, 0)
        holder, _, leaf = path.rpartition(".")
        network.get_submodule(holder).add_module(leaf, made)


def _channels(
    network: nn.Module, paths: list[str], shape: Shape
) -> dict[str, set[tuple[int, bool]]]:
    """(channels, whether they are the last dimension) that each activation module is used with,
    from one example on the meta device. They are where the layer that was called before has
    them."""
    used: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    last = False

    def before(_module: nn.Module, args: tuple[Any, ...], path: str) -> None:
        used[path].add((args[0].shape[-1 if last else 1], last))

    def after(module: nn.Module, _args: Any, _out: Any) -> None:
        nonlocal last
        last = isinstance(module, nn.Linear | nn.LayerNorm)

    handles = []
    for path, module in network.named_modules():
        if path in paths:
            handles.append(
                module.register_forward_pre_hook(lambda m, args, path=path: before(m, args, path))
            )
        elif not list(module.children()):
            handles.append(module.register_forward_hook(after))
    state = {
        key: torch.empty_like(tensor, device="meta")
        for key, tensor in (*network.named_parameters(), *network.named_buffers())
    }
    was_training = network.training
    network.eval()
    floats = torch.empty(1, *shape, device="meta")
    try:
        with torch.no_grad():
            try:
                torch.func.functional_call(network, state, floats)
            except RuntimeError:  # a network that takes token numbers
                torch.func.functional_call(network, state, floats.long())
    finally:
        network.train(was_training)
        for handle in handles:
            handle.remove()
    return used
