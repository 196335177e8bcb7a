"""Forward-backward quantizer pairs: what a binary layer multiplies with (F) and what its latent
hears back (B), methods.md 1.2. Annealed values come in as arguments; schedules live elsewhere.

The functions below the table read like the paper and are what the tests hold the rest against.
The autograd functions compute the same in as few passes over memory as torch allows: on a CPU
`where` and `tanh` cost ten times a copy, so the sign is a copysign and tanh a sigmoid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def sign(x: Tensor) -> Tensor:
    """sign with sign(0) = +1 (methods.md 0.1); torch.sign would make a third level. Adding 0
    turns -0.0 into +0.0, so that copysign treats both zeros alike."""
    return torch.copysign(x.new_ones(()), x + 0.0)


def sign_swish(w: Tensor, mu: float) -> Tensor:
    """SS_mu(w) = x (1 - t^2) + t with x = mu w / 2, t = tanh x (methods.md 1.4)."""
    x = 0.5 * mu * w
    t = torch.tanh(x)
    return x * (1 - t * t) + t


def sign_swish_slope(w: Tensor, mu: float) -> Tensor:
    """SS'_mu(w) = mu (1 - x t)(1 - t^2) (methods.md 1.4)."""
    x = 0.5 * mu * w
    t = torch.tanh(x)
    return mu * (1 - x * t) * (1 - t * t)


def _sign_swish_parts(w: Tensor, mu: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From one sigmoid: with z = mu w, s = sigmoid z, a = s - 1/2 and p = s (1 - s),
    SS = 2 (a + z p) and SS' = 4 mu (1 - z a) p. Returns z, a, p and SS'."""
    z = w * mu
    a = torch.sigmoid(z)
    p = torch.addcmul(a, a, a, value=-1)
    a.sub_(0.5)
    slope = torch.addcmul(w.new_full((), 4 * mu), z, a, value=-4 * mu).mul_(p)
    return z, a, p, slope


class SignIdentity(torch.autograd.Function):
    """F = sign, B = 1."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, value: float) -> Tensor:
        return sign(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


# hardtanh's derivative is 1 on the open interval; the next float up closes it.
_CLOSED = math.nextafter(1.0, 2.0)
_CLOSED_32 = float(torch.nextafter(torch.ones(()), torch.full((), 2.0)))


class SignClipped(torch.autograd.Function):
    """F = sign, B = 1[|w| <= 1]."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, value: float) -> Tensor:
        ctx.save_for_backward(w)
        return sign(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        edge = _CLOSED if w.dtype == torch.float64 else _CLOSED_32
        return torch.ops.aten.hardtanh_backward(grad, w, -edge, edge), None


class SignWithSwishSlope(torch.autograd.Function):
    """F = sign, B = SS'_mu. The slope is made in the backward pass from the input, which the layer
    before keeps anyway, so that no tensor is kept for it."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, mu: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.mu = mu
        return sign(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return _sign_swish_parts(w, ctx.mu)[-1].mul_(grad), None


class SignSwish(torch.autograd.Function):
    """F = SS_mu, B = SS'_mu."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, mu: float) -> Tensor:
        z, a, p, slope = _sign_swish_parts(w, mu)
        ctx.save_for_backward(slope)
        return a.addcmul_(z, p).mul_(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return grad * slope, None


@dataclass(frozen=True)
class Pair:
    """A quantizer pair. `soft` says that F is not the sign during training, so that evaluation
    with the sign is a different network than the one trained (methods.md 6.4)."""

    function: type[torch.autograd.Function]
    soft: bool = False

    def __call__(self, w: Tensor, value: float) -> Tensor:
        return self.function.apply(w, value)


PAIRS: dict[str, Pair] = {
    "bc": Pair(SignIdentity),
    "bnn": Pair(SignClipped),
    "bnn+": Pair(SignWithSwishSlope),
    "bnn++": Pair(SignSwish, soft=True),
}
