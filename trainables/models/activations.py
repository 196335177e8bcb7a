"""Activations of partly binary networks (docs/methods.md 4.1, 4.6)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.models.base import parameter
from bitfront.trainables.parameters import Choice

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
