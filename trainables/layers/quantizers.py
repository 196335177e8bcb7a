"""Forward-backward quantizer pairs (docs/methods.md 1.2): a binary layer multiplies with F(w*), and
the gradient of its latent w* is B(w*) times that of F(w*). Annealed values are arguments; schedules
are in `training.schedules`.

The plain functions are the equations of the papers; tests compare the autograd functions with them.
The autograd functions compute the same in as few passes over memory as torch allows: on a CPU
`where` and `tanh` take ten times as long as a copy; `copysign` and `sigmoid` replace them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def sign(x: Tensor) -> Tensor:
    """sign(x) with sign(0) = +1 (docs/methods.md 0.1); torch.sign(0) is 0, a third level. Adding 0
    turns -0.0 into +0.0, so that copysign treats both zeros alike."""
    out = x.detach() + 0.0
    return torch.copysign(x.new_ones(()), out, out=out)


def sign_swish(w: Tensor, mu: float) -> Tensor:
    """SS_mu(w) = x (1 - t^2) + t with x = mu w / 2, t = tanh x (docs/methods.md 1.4)."""
    x = 0.5 * mu * w
    t = torch.tanh(x)
    return x * (1 - t * t) + t


def sign_swish_slope(w: Tensor, mu: float) -> Tensor:
    """SS'_mu(w) = mu (1 - x t)(1 - t^2) with x = mu w / 2, t = tanh x (docs/methods.md 1.4)."""
    x = 0.5 * mu * w
    t = torch.tanh(x)
    return mu * (1 - x * t) * (1 - t * t)


def piecewise_linear(w: Tensor, rho: float, varrho: float) -> Tensor:
    """L_rho^varrho(w) = sign(w) min(1, p+ + |w| (1 - p+) / (1 - rho)) with p+ = min(1, varrho) for
    rho < 1, and sign(w) for rho >= 1 (Lu et al., NeurIPS 2023, eq. (10) as corrected in
    docs/methods.md 1.3)."""
    if rho >= 1:
        return sign(w)
    start = min(1.0, varrho)
    return sign(w).mul_(start).add_(w, alpha=(1 - start) / (1 - rho)).clamp_(-1, 1)


def triangle_slope(w: Tensor, height: float, edge: float) -> Tensor:
    """height max(0, edge - |w|): B of Bi-Real and R-BNN (docs/methods.md 1.5, 1.6)."""
    return w.abs().sub_(edge).clamp_max_(0).mul_(-height)


def triangle_primitive(w: Tensor, height: float, edge: float) -> Tensor:
    """The odd primitive of `triangle_slope`: height c (edge - |c| / 2), c = clip(w, -edge,
    edge)."""
    c = w.clamp(-edge, edge)
    return c.abs().mul_(-0.5).add_(edge).mul_(c).mul_(height)


# (height, edge) of Bi-Real's slope max(0, 2 - 2 |w|) (docs/methods.md 1.5).
BI_REAL = (2.0, 1.0)


def r_bnn_triangle(t: float) -> tuple[float, float]:
    """(height, edge) = (k t^2, sqrt(2)/t) of R-BNN's slope k max(0, sqrt(2) t - t^2 |w|), with
    k = max(1/t, 1) (docs/methods.md 1.6)."""
    return max(1 / t, 1.0) * t * t, math.sqrt(2) / t


def ede_shape(t: float) -> tuple[float, float]:
    """(k, t) of the error decay estimator k tanh(t w), k = max(1/t, 1) (docs/methods.md 1.7)."""
    return max(1 / t, 1.0), t


class SignIdentity(torch.autograd.Function):
    """F = sign, B = 1 (BinaryConnect)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, value: float) -> Tensor:
        return sign(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


# hardtanh_backward has the derivative 1 on an open interval; up to the next float above 1 it is 1
# on [-1, 1].
_CLOSED = math.nextafter(1.0, 2.0)
_CLOSED_32 = float(torch.nextafter(torch.ones(()), torch.full((), 2.0)))


class SignClipped(torch.autograd.Function):
    """F = sign, B = 1[|w| <= 1] (BNN, docs/methods.md 1.4)."""

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


def _swish_gradient(w: Tensor, mu: float, grad: Tensor) -> Tensor:
    """SS'_mu(w) grad, computed from the input alone, which the layer before keeps anyway."""
    z = w * mu
    s = torch.sigmoid(z)
    # SS' = 4 mu (1 - z (s - 1/2)) p with z = mu w and p = s (1 - s); sigmoid_backward is grad p.
    through = torch.ops.aten.sigmoid_backward(grad, s)
    return z.mul_(s.sub_(0.5)).sub_(1).mul_(through).mul_(-4 * mu)


class SignWithSwishSlope(torch.autograd.Function):
    """F = sign, B = SS'_mu (BNN+, docs/methods.md 1.4)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, mu: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.mu = mu
        return sign(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return _swish_gradient(w, ctx.mu, grad), None


class SignSwish(torch.autograd.Function):
    """F = SS_mu, B = SS'_mu (BNN++, docs/methods.md 1.4). Computed from one sigmoid: with z = mu w,
    s = sigmoid(z) and p = s (1 - s), SS_mu(w) = 2 (s - 1/2 + z p)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, mu: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.mu = mu
        z = w * mu
        s = torch.sigmoid(z)
        soft: Tensor = torch.ops.aten.sigmoid_backward(z, s).add_(s).mul_(2).sub_(1)
        return soft

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return _swish_gradient(w, ctx.mu, grad), None


class ComposedSwish(torch.autograd.Function):
    """F = SS_mu(L_rho(w)), B = SS'_mu(L_rho(w)): BNN++ composed with a proximal quantizer (Lu et
    al., NeurIPS 2023, Example 3; docs/methods.md 1.4)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, mu: float, rho: float, varrho: float) -> Tensor:
        v = piecewise_linear(w, rho, varrho)
        ctx.save_for_backward(v)
        ctx.mu = mu
        return sign_swish(v, mu)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (v,) = ctx.saved_tensors
        return _swish_gradient(v, ctx.mu, grad), None, None, None


class Identity(torch.autograd.Function):
    """F(w) = w, B = 1: weights that are binarized after training (PTB, docs/methods.md 1.1)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, value: float) -> Tensor:
        return w.view_as(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class PiecewiseLinear(torch.autograd.Function):
    """F = L_rho^varrho, B = 1 (ProxConnect): the slope of L is not used (docs/methods.md 1.13)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, rho: float, varrho: float) -> Tensor:
        return piecewise_linear(w, rho, varrho)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None, None


class SignWithTriangleSlope(torch.autograd.Function):
    """F = sign, B = height max(0, edge - |w|) (Bi-Real and R-BNN, docs/methods.md 1.5, 1.6)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, height: float, edge: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.shape = height, edge
        return sign(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return triangle_slope(w, *ctx.shape).mul_(grad), None, None


class TrianglePrimitive(torch.autograd.Function):
    """F = the odd primitive of B, B = height max(0, edge - |w|) (Poly+, docs/methods.md 1.6)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, height: float, edge: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.shape = height, edge
        return triangle_primitive(w, height, edge)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return triangle_slope(w, *ctx.shape).mul_(grad), None, None


class ShiftedSign(torch.autograd.Function):
    """F = sign(w - a) with a learnable shift a, B = height max(0, edge - |w - a|), and
    dL/da = -sum dL/dF B(w - a), the sum over all w with this shift (ReActNet, docs/methods.md
    1.8)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, height: float, edge: float, shift: Tensor) -> Tensor:
        ctx.save_for_backward(w, shift)
        ctx.shape = height, edge
        return sign(w - shift)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        w, shift = ctx.saved_tensors
        height, edge = ctx.shape
        gradient = (w - shift).abs_().sub_(edge).clamp_max_(0).mul_(grad).mul_(-height)
        return gradient, None, None, gradient.sum_to_size(shift.shape).neg()


def _tanh_gradient(w: Tensor, grad: Tensor, k: float, t: float) -> Tensor:
    """k t (1 - tanh^2(t w)) grad, with 1 - tanh^2(t w) = 4 s (1 - s), s = sigmoid(2 t w)."""
    s = w.mul(2 * t).sigmoid_()
    gradient: Tensor = torch.ops.aten.sigmoid_backward(grad, s).mul_(4 * k * t)
    return gradient


class SignWithTanhSlope(torch.autograd.Function):
    """F = sign, B = k t (1 - tanh^2(t w)) (EDE of IR-Net, docs/methods.md 1.7)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, k: float, t: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.shape = k, t
        return sign(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return _tanh_gradient(w, grad, *ctx.shape), None, None


class Tanh(torch.autograd.Function):
    """F = k tanh(t w), B = F' = k t (1 - tanh^2(t w)) (EDE+, docs/methods.md 1.7)."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, k: float, t: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.shape = k, t
        return w.mul(2 * t).sigmoid_().mul_(2 * k).sub_(k)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return _tanh_gradient(w, grad, *ctx.shape), None, None


def _as_it_is(value: float) -> tuple[float, ...]:
    return (value,)


@dataclass(frozen=True)
class Pair:
    """A quantizer pair (F, B). `function` computes it; `arguments` makes its arguments from the
    annealed value. `soft`: F is not the sign, so that training and evaluation, which uses the sign,
    compute different networks (docs/methods.md 6.4). `shifted`: `function` takes a learnable shift
    as its last argument."""

    function: type[torch.autograd.Function]
    soft: bool = False
    arguments: Callable[[float], tuple[float, ...]] = _as_it_is
    shifted: bool = False

    def __call__(self, w: Tensor, value: float, shift: Tensor | None = None) -> Tensor:
        more = () if shift is None else (shift,)
        quantized: Tensor = self.function.apply(w, *self.arguments(value), *more)
        return quantized


def pc_pair(varrho: float) -> Pair:
    """ProxConnect's pair F = L_rho^varrho, B = 1; the argument `varrho` is the ratio varrho /
    rho."""
    return Pair(PiecewiseLinear, soft=True, arguments=lambda rho: (rho, varrho * rho))


def composed_pair(rho: Callable[[], float]) -> Pair:
    """BNN++'s pair at L_rho(w), with varrho = rho and the present value of `rho`."""
    return Pair(ComposedSwish, soft=True, arguments=lambda mu: (mu, rho(), rho()))


def _bi_real(_value: float) -> tuple[float, ...]:
    return BI_REAL


PAIRS: dict[str, Pair] = {
    "bc": Pair(SignIdentity),
    "bnn": Pair(SignClipped),
    "bnn+": Pair(SignWithSwishSlope),
    "bnn++": Pair(SignSwish, soft=True),
    "pc": pc_pair(1.0),
    "bi-real": Pair(SignWithTriangleSlope, arguments=_bi_real),
    "r-bnn": Pair(SignWithTriangleSlope, arguments=r_bnn_triangle),
    "poly+": Pair(TrianglePrimitive, soft=True, arguments=r_bnn_triangle),
    "ede": Pair(SignWithTanhSlope, arguments=ede_shape),
    "ede+": Pair(Tanh, soft=True, arguments=ede_shape),
    "react": Pair(ShiftedSign, arguments=_bi_real, shifted=True),
    "ptb": Pair(Identity, soft=True),
}


# --- the accumulator of level A (docs/methods.md 1.9) -------------------------------------------


def wrapped(z: Tensor, bits: int) -> Tensor:
    """wrap_b(z) = ((z + M) mod 2^b) - M, M = 2^(b-1): the value in an accumulator of b bits
    (WrapNet, docs/methods.md 1.9). Computed as z - 2^b floor(z / 2^b + 1/2), which is exact for
    powers of two and several times as fast as a remainder."""
    period = 2.0**bits
    return z.mul(1 / period).add_(0.5).floor_().mul_(-period).add_(z)


class CyclicActivation(torch.autograd.Function):
    """c_k(m) = sign(m) min(|m|, k (M - |m|)) for m = wrap_b(z), M = 2^(b-1) (WrapNet,
    docs/methods.md 1.9). Its derivative by z is 1 for |m| <= k M / (k + 1), else -k; one bool per
    element is kept for it. c_k(wrap_b(z)) is continuous with period 2^b: an overflow does not
    change it."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, bits: int, slope: float) -> Tensor:
        m = wrapped(z, bits)
        magnitude = m.abs()
        falling = magnitude.mul(-slope).add_(slope * 2.0 ** (bits - 1))
        ctx.slope = slope
        ctx.save_for_backward(falling < magnitude)
        torch.minimum(magnitude, falling, out=falling)
        return torch.copysign(falling, m, out=falling)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (outer,) = ctx.saved_tensors
        return torch.addcmul(grad, grad, outer.to(grad.dtype), value=-1 - ctx.slope), None, None
