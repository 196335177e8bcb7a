"""Parametrizations of the methods that have an optimizer of their own (docs/methods.md 2 and 3).
Each defines the weight F(latent) of training, the sign of evaluation, and B: the gradient of the
latent is B times that of the weight. The optimizers are in `optimizers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.quantizers import SignIdentity, sign
from bitfront.trainables.optimizers.bayesbinn import (
    EDGE,
    logistic_noise,
    relaxed_scale,
    relaxed_weight,
)
from bitfront.trainables.structure.attention import Projection
from bitfront.trainables.structure.kinds import product


class Shared:
    """The state that all binary layers of a network share. `value`: the present temperature tau or
    sharpness beta. `real`: training multiplies with the latents themselves, as in a first phase of
    real weights. `as_trained`: evaluation uses the weights of training. `draws`: where set,
    evaluation draws weights with this generator."""

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
    """The parametrization of one weight. Subclasses override F; in this class the weight of
    training is the latent itself: F(w) = w, B(w) = 1."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.shared = shared

    def trained(self, latent: Tensor) -> Tensor:
        """F(latent), differentiable with the factor B: the weight of one training step."""
        return latent.view_as(latent)

    def expected(self, latent: Tensor) -> Tensor:
        """F(latent) without random numbers."""
        return self.trained(latent)

    def slope(self, latent: Tensor) -> Tensor:
        """B(latent): the gradient of the latent for a gradient of 1 of the weight."""
        with torch.enable_grad():
            w = latent.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.expected(w).sum(), w)
        return slope

    def sign(self, latent: Tensor) -> Tensor:
        return sign(latent)

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        """Replace the weights in `latent` by the latents that training starts from, in place."""

    def forward(self, latent: Tensor) -> Tensor:
        soft = self.training or self.shared.as_trained
        if soft and self.shared.real:
            return latent.view_as(latent)
        if soft:
            return self.trained(latent) if self.training else self.expected(latent)
        return self.sign(latent)

    def sum_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """(signs, None) of a layer that is evaluated by sums, drawn signs where evaluation draws;
        None in training."""
        return None if self.training or self.shared.as_trained else (self(latent), None)

    def forward_backward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """(F(latent), B(latent))."""
        if self.shared.real:
            return latent, torch.ones_like(latent)
        return self.expected(latent).detach(), self.slope(latent)

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        """(signs that evaluation multiplies with, None); these weights have no scales."""
        return self.sign(latent), None


class SignedWeight(Latent):
    """F = sign(w), B = 1 (STE-Adam, docs/methods.md 2.5)."""

    def trained(self, latent: Tensor) -> Tensor:
        weight: Tensor = SignIdentity.apply(latent, 0.0)
        return weight


class FlippedWeight(Latent):
    """The latent is the weight itself and is +1 or -1 (Bop, docs/methods.md 2.6)."""

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        latent.copy_(sign(latent))


class CubeWeight(Latent):
    """The latent is the weight itself, in [-1, 1]; its optimizer drives it to -1 or +1 (BNEW and
    MD-tanh, docs/methods.md 3.2, 3.5)."""

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        latent.clamp_(-1, 1)


class _TanhIdentity(torch.autograd.Function):
    """F(a) = tanh(beta a), B(a) = 1: mirror descent applies the gradient at w = F(a) to a unchanged
    (Ajanthan et al., AISTATS 2021; docs/methods.md 3.5). Computed as 2 sigmoid(2 beta a) - 1, which
    is correct for every beta."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, beta: float) -> Tensor:
        return a.mul(2 * beta).sigmoid_().mul_(2).sub_(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class MirroredWeight(Latent):
    """w = tanh(beta a) (binary mirror descent, docs/methods.md 3.5)."""

    def trained(self, latent: Tensor) -> Tensor:
        weight: Tensor = _TanhIdentity.apply(latent, self.shared.value)
        return weight


def _mean_of(ctx: Any, p: Tensor, beta: float) -> Tensor:
    """The mean weight p - (1 - p) = 2 p - 1, with p the probability of +1, which is saved for the
    backward pass."""
    ctx.beta = beta
    ctx.save_for_backward(p)
    return p.mul(2).sub_(1)


class _ReleasedMeanField(torch.autograd.Function):
    """F(u) = p_2 - p_1 = tanh(beta (u_2 - u_1) / 2), p = softmax(beta u), where u_2 (`plus`) and
    u_1 (`minus`) belong to the levels +1 and -1 (Ajanthan et al., ICCV 2019; docs/methods.md 2.7).
    The Jacobian is beta (I - p p^T), as in the released code, in place of beta (diag(p) - p p^T):
    its gradients do not vanish at the corners."""

    @staticmethod
    def forward(ctx: Any, plus: Tensor, minus: Tensor, beta: float) -> Tensor:
        return _mean_of(ctx, (plus - minus).mul_(beta).sigmoid_(), beta)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (p,) = ctx.saved_tensors
        # With h = beta dL/dw, p = p_2 and w = p_2 - p_1: the gradient of u_2 is h (1 - p w), that
        # of u_1 is -h (1 + (1 - p) w) = -(h (1 - p w) + h w).
        plus = grad * ctx.beta
        along = p.mul(2).sub_(1).mul_(plus)
        plus.addcmul_(p, along, value=-1)
        return plus, along.add_(plus).neg_(), None


class _MeanField(torch.autograd.Function):
    """F(u) = tanh(beta u), the mean weight for u_2 = u and u_1 = -u. B is the derivative by u_2
    alone, B(u) = 2 beta p (1 - p) with p = sigmoid(2 beta u) (Ajanthan et al., ICCV 2019;
    docs/methods.md 2.7)."""

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
    """The latent is u_2, which belongs to the level +1 (PMF, docs/methods.md 2.7); u_1 starts at
    -u_2. With the exact Jacobian the gradients of both are opposite, so that u_1 = -u_2 at every
    step and is not stored. With the released Jacobian they are not, and `shift` is u_1."""

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
        weight: Tensor
        if self.shift is None:
            weight = _MeanField.apply(latent, beta)
        else:
            weight = _ReleasedMeanField.apply(latent, self.shift, beta)
        return weight

    def sign(self, latent: Tensor) -> Tensor:
        return sign(latent if self.shift is None else latent - self.shift)


# The |x| from which |tanh(x)| is exactly 1, by dtype.
SATURATED = {torch.float32: 9.02, torch.float64: 19.1}
# The largest |delta| for eps in [EDGE, 1 - EDGE].
LARGEST_NOISE = 8.0591


class RelaxedSample(torch.autograd.Function):
    """F and B of BayesBiNN (Meng, Bachmann and Khan, ICML 2020; docs/methods.md 2.2):

    F = w_b = tanh((lam + delta) / tau),  delta = log(eps / (1 - eps)) / 2,  eps ~ U(0, 1)
    B = s / N = (1 - w_b^2 + 1e-10) / (tau (1 - mu^2 + 1e-10)),  mu = tanh(lam)

    Where |lam| is so large that no noise can change the sign, F is sign(lam) and B is exactly
    1 / tau. At a tiny tau this holds for nearly all weights; noise is drawn for the others only."""

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
        w = sign(lam).contiguous()
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
        gradient = (grad / ctx.tau).contiguous()  # that of a convolution may be channels last
        scale = relaxed_scale(drawn, some, ctx.tau)
        gradient.view(-1)[index] = grad.reshape(-1)[index] * scale
        return gradient, None


class SampledWeight(Latent):
    """The latent is the natural parameter lam of a Bernoulli weight, P(w = +1) = sigmoid(2 lam);
    `prior` is lam_0 of the KL term (BayesBiNN, docs/methods.md 2.1, 2.2)."""

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
        weight: Tensor = RelaxedSample.apply(latent.contiguous(), self.shared.value)
        return weight

    def expected(self, latent: Tensor) -> Tensor:
        return torch.tanh(latent)

    def slope(self, latent: Tensor) -> Tensor:
        tau = self.shared.value
        return relaxed_scale(relaxed_weight(latent, torch.zeros_like(latent), tau), latent, tau)

    def forward(self, latent: Tensor) -> Tensor:
        draws = self.shared.draws
        if draws is None or self.training:
            return super().forward(latent)
        # w = 2 Bernoulli(sigmoid(2 lam)) - 1 (docs/methods.md 2.3).
        eps = torch.rand(latent.shape, generator=draws, device=latent.device)
        return sign(torch.sigmoid(2 * latent) - eps.clamp_(EDGE, 1 - EDGE))


class StochasticWeight(Latent):
    """The latent is theta, with p = P(w = +1) = sigmoid(theta); F(theta) is the mean weight
    m_w = 2 p - 1 (LR-net, Shayer et al., ICLR 2018; docs/methods.md 2.8)."""

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        """theta = logit(p), p = clip(0.5 + 0.5 w / max |w|, 0.05, 0.95) (docs/methods.md 2.8)."""
        largest = latent.abs().max().clamp_min(1e-12)
        latent.copy_(torch.logit((0.5 + 0.5 * latent / largest).clamp_(0.05, 0.95)))

    def trained(self, latent: Tensor) -> Tensor:
        return torch.sigmoid(latent).mul(2).sub(1)


def reparametrize_locally(layer: nn.Module, weight: StochasticWeight) -> None:
    """Make the layer draw its outputs in training from the normal distribution that approximates
    sums over independent weights (the local reparameterization trick of LR-net, Shayer et al., ICLR
    2018; docs/methods.md 2.8). Evaluation is unchanged."""
    if isinstance(layer, Projection):
        raise UserError(
            "lr-net draws the outputs of layers, and nn.MultiheadAttention hides those of the "
            "projections of its inputs",
            "keep them in full precision: task.keep_full: ['*.in_proj']",
        )
    plain: Callable[..., Tensor] = layer.forward

    def forward(x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if not weight.training or weight.shared.real:
            return plain(x) if output_size is None else plain(x, output_size)
        mean: Tensor = layer.weight  # type: ignore[assignment]
        bias: Tensor | None = layer.bias  # type: ignore[assignment]
        return normal_outputs(layer, x, mean, bias, output_size)

    layer.forward = forward


def normal_outputs(
    layer: nn.Module,
    x: Tensor,
    mean: Tensor,
    bias: Tensor | None,
    output_size: list[int] | None = None,
) -> Tensor:
    """conv(h, m_w) + sqrt(conv(h^2, 1 - m_w^2) + 1e-8) N(0, 1) for the input h = `x` and weights of
    mean m_w = `mean` (docs/methods.md 2.8)."""
    spread = 1 - mean * mean
    centre = product(layer, x, mean, bias, output_size)
    variance = product(layer, x * x, spread, None, output_size)
    # Rounding in fast convolutions may give a variance slightly below 0.
    return centre + variance.clamp_min(0).add(1e-8).sqrt() * torch.randn_like(centre)


class Averaged(nn.Module):
    """A network that predicts with the mean over `samples` draws of its binary weights, the same
    draws for every batch (docs/methods.md 2.3). `combine` makes one output from those of all
    draws."""

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
        """The outputs of every draw, stacked in a first dimension."""
        self.shared.draws = torch.Generator(x.device).manual_seed(self.seed)
        try:
            return torch.stack([self.model(x) for _ in range(self.samples)])
        finally:
            self.shared.draws = None

    def forward(self, x: Tensor) -> Tensor:
        return self.combine(self.outputs(x), self.average)
