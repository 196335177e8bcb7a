"""The weight of a binary layer: s F(w*) in training, s sign(w*) in evaluation, with the scale s of
its group. The pairs (F, B) are in `quantizers`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfront.trainables.layers.quantizers import Pair, sign


class Annealed:
    """The quantizer pair and its present annealed value, which all layers of a network share.
    `as_trained`: evaluation uses F instead of the sign."""

    def __init__(self, pair: Pair, value: float) -> None:
        self.pair = pair
        self.value = value
        self.as_trained = False


# Values of the scale parameter that mean one scale per output channel.
PER_CHANNEL = ("channel", "power2", "learned")


def mean_magnitude(w: Tensor, scale: str) -> Tensor | None:
    """mean |w| over the scale group, without gradient (docs/methods.md 1.8, 1.11); as a power of
    two for `power2` (docs/methods.md 1.7)."""
    if scale == "none":
        return None
    dims = tuple(range(w.dim())) if scale == "layer" else tuple(range(1, w.dim()))
    mean = w.detach().abs().mean(dims, keepdim=True)
    return torch.exp2(torch.round(torch.log2(mean))) if scale == "power2" else mean


class Standardized(nn.Module):
    """(w - mean) / std per output channel, which makes about half of the signs +1 (the balanced
    weights of IR-Net, docs/methods.md 1.7)."""

    def forward(self, latent: Tensor) -> Tensor:
        dims = tuple(range(1, latent.dim()))
        centred = latent - latent.mean(dims, keepdim=True)
        return centred / centred.std(dims, keepdim=True).clamp_min(1e-12)


class Rotated(nn.Module):
    """w3 = w2 + |sin(angle)| (R1' w2 R2 - w2) of R-BNN (Lin et al., NeurIPS 2020; docs/methods.md
    1.6): the standardized weight w2, each output channel as a matrix, is rotated towards the
    nearest signs. R1 is `left`, R2 is `right`; the angle is learnable and starts at pi/2."""

    ROUNDS = 3
    left: Tensor
    right: Tensor

    def __init__(self, latent: Tensor) -> None:
        super().__init__()
        size = latent[0].numel()
        rows = max(n for n in range(1, math.isqrt(size) + 1) if size % n == 0)
        self.standardized = Standardized()
        self.angle = nn.Parameter(torch.full((), math.pi / 2))
        self.register_buffer("left", torch.eye(rows))
        self.register_buffer("right", torch.eye(size // rows))

    def _matrices(self, w: Tensor) -> Tensor:
        return w.reshape(len(w), len(self.left), len(self.right))

    def _turned(self, x: Tensor) -> Tensor:
        return self.left.T @ x @ self.right

    def forward(self, latent: Tensor) -> Tensor:
        w = self.standardized(latent)
        turned = self._turned(self._matrices(w)).reshape(w.shape)
        out: Tensor = w + self.angle.sin().abs() * (turned - w)
        return out

    @torch.no_grad()
    def estimate(self, latent: Tensor) -> None:
        """Set R1 and R2 by ROUNDS rounds of: B = sign(R1' X R2); then R1, then R2 that bring R1' X
        R2 nearest to B, from SVDs of the sums over output channels of X R2 B' and X' R1 B."""
        x = self._matrices(self.standardized(latent))
        for _ in range(self.ROUNDS):
            b = sign(self._turned(x))
            self.left = _nearest_rotation(torch.einsum("nij,jk,nlk->il", x, self.right, b))
            self.right = _nearest_rotation(torch.einsum("nij,ik,nkl->jl", x, self.left, b))


def _nearest_rotation(m: Tensor) -> Tensor:
    """The orthogonal R with the greatest trace of R' M: U V' of the singular vectors M = U S V'."""
    u, _, vh = torch.linalg.svd(m)
    rotation: Tensor = u @ vh
    return rotation


class Times(torch.autograd.Function):
    """signs * s, whose gradient for the signs is that of the product, without the factor s (the
    released Bi-Real, docs/methods.md 1.5)."""

    @staticmethod
    def forward(ctx: Any, signs: Tensor, s: Tensor) -> Tensor:
        ctx.save_for_backward(signs, s)
        return signs * s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        signs, s = ctx.saved_tensors
        learned = (grad * signs).sum_to_size(s.shape) if ctx.needs_input_grad[1] else None
        return grad, learned


class Divided(torch.autograd.Function):
    """The signs as they are, with their gradient divided by s: for a layer that multiplies its sums
    with s, where the gradient of the signs has that factor."""

    @staticmethod
    def forward(ctx: Any, signs: Tensor, s: Tensor) -> Tensor:
        ctx.save_for_backward(s)
        return signs.view_as(signs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (s,) = ctx.saved_tensors
        return grad / s.clamp_min(torch.finfo(s.dtype).tiny), None


class WeightQuantizer(nn.Module):
    """The weight s F(w) in training and s sign(w) in evaluation, with the scale s of its group.

    w is the latent w*, or `before(w*)`, which standardizes or rotates it. In a layer with an
    accumulator `scaled` is False: the scale is applied to the accumulator's output."""

    def __init__(
        self,
        annealed: Annealed,
        scale: str,
        latent: Tensor,
        before: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.annealed = annealed
        self.scale = scale
        self.scaled = True
        self.before = before if before is not None else nn.Identity()
        per_channel = (len(latent), *(1,) * (latent.dim() - 1))
        self.shift = nn.Parameter(torch.zeros(per_channel)) if annealed.pair.shifted else None
        self.learned = nn.Parameter(torch.ones(per_channel)) if scale == "learned" else None
        self.start(latent)

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        """Initialise the rotation and the learned scales for these weights."""
        if isinstance(self.before, Rotated):
            self.before.estimate(latent)
        if self.learned is not None:
            self.learned.copy_(mean_magnitude(self.before(latent), "channel"))  # type: ignore[arg-type]

    def scales(self, w: Tensor) -> Tensor | None:
        if self.learned is not None:
            return self.learned.abs()
        return mean_magnitude(w, self.scale)

    def output_scales(self, latent: Tensor) -> Tensor | None:
        """The scales at this latent, for a layer that applies them to its sums."""
        return self.scales(self.before(latent))

    def soft(self, w: Tensor) -> Tensor:
        """F of the weight, without its scale."""
        return self.annealed.pair(w, self.annealed.value, self.shift)

    def sign(self, w: Tensor) -> Tensor:
        return sign(w if self.shift is None else w - self.shift)

    def forward(self, latent: Tensor) -> Tensor:
        w = self.before(latent)
        out = self.soft(w) if self.training or self.annealed.as_trained else self.sign(w)
        s = self.scales(w) if self.scaled else None
        return out if s is None else out * s

    def sum_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """(signs, scales) of a layer that is evaluated by sums; None in training."""
        if self.training or self.annealed.as_trained:
            return None
        w = self.before(latent)
        return self.sign(w), self.scales(w)

    def forward_backward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """(F(w), B(w)) at this latent, without scale."""
        with torch.enable_grad():
            w = self.before(latent).detach().requires_grad_()
            out = self.soft(w)
            (slope,) = torch.autograd.grad(out, w, torch.ones_like(out))
        return out.detach(), slope

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        """(signs, scales) that evaluation multiplies with."""
        w = self.before(latent)
        s = self.scales(w)
        return self.sign(w), None if s is None else s.detach()


class UnscaledGradient(WeightQuantizer):
    """The weight s F(w) whose latent's gradient is B(w) dL/d(s F(w)), without the factor s, also
    where the scale is applied to sums (the released Bi-Real, docs/methods.md 1.5)."""

    def forward(self, latent: Tensor) -> Tensor:
        w = self.before(latent)
        out = self.soft(w) if self.training or self.annealed.as_trained else self.sign(w)
        s = self.scales(w)
        if s is None:
            return out
        weight: Tensor = Times.apply(out, s) if self.scaled else Divided.apply(out, s.detach())
        return weight


class UpdatedWeight(WeightQuantizer):
    """The weight of a scheme that projects the parameter itself (PQ, rPC, PTB): F(w) = w in
    training, s sign(w) in evaluation."""

    def soft(self, w: Tensor) -> Tensor:
        return w.view_as(w)

    def scales(self, w: Tensor) -> Tensor | None:
        """The scales in evaluation; None in training, which has none."""
        soft = self.training or self.annealed.as_trained
        return None if soft else super().scales(w)

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.sign(latent), super().scales(latent)
