"""What a latent means to the methods that have an optimizer of their own (methods.md 2 and 3): the
weight a layer multiplies with in training, in evaluation, and what its latent hears back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfront.trainables.layers.quantizers import SignIdentity, sign
from bitfront.trainables.optimizers.bayesbinn import (
    EDGE,
    logistic_noise,
    relaxed_scale,
    relaxed_weight,
)


class Shared:
    """What all binary layers of a network share: `value` is the temperature or sharpness at this
    moment; `real` says that weights are real for now, as in a first phase; `as_trained` makes
    evaluation use the weights of training; `draws` makes it draw weights from this generator."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value
        self.real = False
        self.as_trained = False
        self.draws: torch.Generator | None = None

    @contextmanager
    def trained_weights(self) -> Iterator[None]:
        self.as_trained = True
        try:
            yield
        finally:
            self.as_trained = False


class Latent(nn.Module):
    """The parametrization of one weight. A subclass says what training multiplies with; here that
    is the latent itself, which hears its gradient unchanged."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.shared = shared

    def trained(self, latent: Tensor) -> Tensor:
        """The weight of a step of training, with its gradient."""
        return latent.view_as(latent)

    def expected(self, latent: Tensor) -> Tensor:
        """The same without chance."""
        return self.trained(latent)

    def heard(self, latent: Tensor) -> Tensor:
        """What the latent hears of a gradient of 1."""
        with torch.enable_grad():
            w = latent.detach().requires_grad_()
            (heard,) = torch.autograd.grad(self.expected(w).sum(), w)
        return heard

    def sign(self, latent: Tensor) -> Tensor:
        return sign(latent)

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        """Make of ordinary weights, in place, what the latent is to begin with."""

    def forward(self, latent: Tensor) -> Tensor:
        soft = self.training or self.shared.as_trained
        if soft and self.shared.real:
            return latent.view_as(latent)
        if soft:
            return self.trained(latent) if self.training else self.expected(latent)
        return self.sign(latent)

    def forward_backward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """F and B at this latent."""
        if self.shared.real:
            return latent, torch.ones_like(latent)
        return self.expected(latent).detach(), self.heard(latent)

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        """The signs evaluation multiplies with; there are no scales."""
        return self.sign(latent), None


class SignedWeight(Latent):
    """F = sign, B = 1 (STE-Adam)."""

    def trained(self, latent: Tensor) -> Tensor:
        return SignIdentity.apply(latent, 0.0)


class FlippedWeight(Latent):
    """Weights that are +-1 themselves (Bop)."""

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        latent.copy_(sign(latent))


class CubeWeight(Latent):
    """Weights in [-1, 1] that training drives to the corners itself (BNEW, MD-tanh)."""

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        latent.clamp_(-1, 1)


class _TanhIdentity(torch.autograd.Function):
    """F = tanh(beta a), B = 1: mirror descent applies the gradient at w to a unchanged. As a
    sigmoid, which no beta overflows."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, beta: float) -> Tensor:
        return a.mul(2 * beta).sigmoid_().mul_(2).sub_(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class MirroredWeight(Latent):
    """w = tanh(beta a) (BMD, methods.md 3.5)."""

    def trained(self, latent: Tensor) -> Tensor:
        return _TanhIdentity.apply(latent, self.shared.value)


def _mean_of(ctx: Any, p: Tensor, beta: float) -> Tensor:
    """The mean weight p - (1 - p) of the probability p of +1, which the backward pass needs."""
    ctx.beta = beta
    ctx.save_for_backward(p)
    return p.mul(2).sub_(1)


class _ReleasedMeanField(torch.autograd.Function):
    """w = tanh(beta (u_2 - u_1) / 2) with the Jacobian I - p p' of PMF's released code in place of
    diag(p) - p p' (methods.md 2.7): it hears gradients at the corners too."""

    @staticmethod
    def forward(ctx: Any, plus: Tensor, minus: Tensor, beta: float) -> Tensor:
        return _mean_of(ctx, (plus - minus).mul_(beta).sigmoid_(), beta)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (p,) = ctx.saved_tensors
        # With h = beta grad: plus = h (1 - p w), minus = -h (1 + (1 - p) w) = -(plus + h w).
        plus = grad * ctx.beta
        along = p.mul(2).sub_(1).mul_(plus)
        plus.addcmul_(p, along, value=-1)
        return plus, along.add_(plus).neg_(), None


class _MeanField(torch.autograd.Function):
    """w = tanh(beta u) for u_2 = u and u_1 = -u, with the gradient of u_2."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, beta: float) -> Tensor:
        return _mean_of(ctx, u.mul(2 * beta).sigmoid_(), beta)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (p,) = ctx.saved_tensors
        slope = p.mul(2 * ctx.beta)
        return slope.addcmul_(slope, p, value=-1).mul_(grad), None


class MeanFieldWeight(Latent):
    """The latent is u of the level +1 (PMF). Both levels begin opposite and hear opposite gradients
    from the exact Jacobian, so u of the level -1 is the negative of it; the released Jacobian tells
    them apart, and `shift` is the other one."""

    def __init__(self, shared: Shared, latent: Tensor, jacobian: str) -> None:
        super().__init__(shared)
        released = jacobian == "released"
        self.shift = nn.Parameter(torch.zeros_like(latent)) if released else None

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        latent.mul_(0.5)
        if self.shift is not None:
            self.shift.copy_(-latent)

    def trained(self, latent: Tensor) -> Tensor:
        beta = self.shared.value
        if self.shift is None:
            return _MeanField.apply(latent, beta)
        return _ReleasedMeanField.apply(latent, self.shift, beta)

    def sign(self, latent: Tensor) -> Tensor:
        return sign(latent if self.shift is None else latent - self.shift)


# From here on tanh is exactly 1 in this precision.
SATURATED = {torch.float32: 9.02, torch.float64: 19.1}
# The largest |delta| of eps kept EDGE away from 0 and 1.
LARGEST_NOISE = 8.0591


class RelaxedSample(torch.autograd.Function):
    """F = tanh((lam + delta) / tau) with logistic noise delta, B = s / N (methods.md 2.2).

    Where |lam| is so large that no noise changes its sign, F is the sign and B is 1 / tau
    exactly. At tiny tau that is nearly everywhere, so only the other weights are drawn."""

    @staticmethod
    def forward(ctx: Any, lam: Tensor, tau: float) -> Tensor:
        ctx.tau = tau
        edge = SATURATED.get(lam.dtype, SATURATED[torch.float64])
        loose = lam.abs().lt_(max(edge, LARGEST_NOISE + edge * tau))
        ctx.few = int(loose.count_nonzero()) <= lam.numel() // 4
        if not ctx.few:
            w = relaxed_weight(lam, logistic_noise(torch.rand_like(lam)), tau)
            ctx.save_for_backward(lam, w)
            return w
        index = loose.flatten().nonzero().squeeze(1)
        some = lam.flatten()[index]
        drawn = relaxed_weight(some, logistic_noise(torch.rand_like(some)), tau)
        w = sign(lam)
        w.view(-1)[index] = drawn
        ctx.save_for_backward(some, drawn, index)
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        if not ctx.few:
            lam, w = ctx.saved_tensors
            return relaxed_scale(w, lam, ctx.tau).mul_(grad), None
        some, drawn, index = ctx.saved_tensors
        heard = grad / ctx.tau
        scale = relaxed_scale(drawn, some, ctx.tau)
        heard.view(-1)[index] = grad.reshape(-1)[index] * scale
        return heard, None


class SampledWeight(Latent):
    """The latent is the natural parameter lam of a Bernoulli weight, `prior` lam0 (BayesBiNN)."""

    prior: Tensor

    def __init__(self, shared: Shared, latent: Tensor, start_at: float) -> None:
        super().__init__(shared)
        self.start_at = start_at
        self.register_buffer("prior", torch.zeros_like(latent))

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        latent.copy_(sign(latent).mul_(self.start_at))
        self.prior.zero_()

    def trained(self, latent: Tensor) -> Tensor:
        return RelaxedSample.apply(latent.contiguous(), self.shared.value)

    def expected(self, latent: Tensor) -> Tensor:
        return torch.tanh(latent)

    def heard(self, latent: Tensor) -> Tensor:
        tau = self.shared.value
        return relaxed_scale(relaxed_weight(latent, torch.zeros_like(latent), tau), latent, tau)

    def forward(self, latent: Tensor) -> Tensor:
        draws = self.shared.draws
        if draws is None or self.training:
            return super().forward(latent)
        # 2 Bernoulli(sigmoid(2 lam)) - 1, methods.md 2.3.
        eps = torch.rand(latent.shape, generator=draws, device=latent.device)
        return sign(torch.sigmoid(2 * latent) - eps.clamp_(EDGE, 1 - EDGE))


class StochasticWeight(Latent):
    """The latent is theta, p(+1) = sigmoid(theta); the mean weight is 2 p - 1 (LR-net)."""

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        """p = clip(0.5 + 0.5 w / max |w|, 0.05, 0.95) (methods.md 2.8)."""
        largest = latent.abs().max().clamp_min(1e-12)
        latent.copy_(torch.logit((0.5 + 0.5 * latent / largest).clamp_(0.05, 0.95)))

    def trained(self, latent: Tensor) -> Tensor:
        return torch.sigmoid(latent).mul(2).sub(1)


def reparametrize_locally(layer: nn.Module, weight: StochasticWeight) -> None:
    """In training the layer's outputs are drawn, from a normal distribution with the mean and the
    variance that independent weights of mean m give: conv(h, m) and conv(h^2, 1 - m^2)."""
    plain: Callable[[Tensor], Tensor] = layer.forward

    def forward(x: Tensor) -> Tensor:
        if not weight.training or weight.shared.real:
            return plain(x)
        mean: Tensor = layer.weight  # type: ignore[assignment]
        bias: Tensor | None = layer.bias  # type: ignore[assignment]
        return normal_outputs(layer, x, mean, bias)

    layer.forward = forward


def normal_outputs(layer: nn.Module, x: Tensor, mean: Tensor, bias: Tensor | None) -> Tensor:
    spread = 1 - mean * mean
    if isinstance(layer, nn.Conv2d):
        centre = layer._conv_forward(x, mean, bias)
        variance = layer._conv_forward(x * x, spread, None)
    else:
        centre = nn.functional.linear(x, mean, bias)
        variance = nn.functional.linear(x * x, spread)
    # Fast convolutions may leave a variance of 0 a little below it.
    return centre + variance.clamp_min(0).add(1e-8).sqrt() * torch.randn_like(centre)


class Averaged(nn.Module):
    """Predicts with the mean over draws of a network's binary weights, the same ones for every
    batch (methods.md 2.3). `combine` makes one output of many."""

    def __init__(
        self,
        model: nn.Module,
        shared: Shared,
        samples: int,
        combine: Callable[[Tensor, str], Tensor],
        average: str,
        seed: int,
    ) -> None:
        super().__init__()
        self.model = model
        self.shared = shared
        self.samples = samples
        self.combine = combine
        self.average = average
        self.seed = seed

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs of every draw, in a first dimension of their own."""
        self.shared.draws = torch.Generator(x.device).manual_seed(self.seed)
        try:
            return torch.stack([self.model(x) for _ in range(self.samples)])
        finally:
            self.shared.draws = None

    def forward(self, x: Tensor) -> Tensor:
        return self.combine(self.outputs(x), self.average)
