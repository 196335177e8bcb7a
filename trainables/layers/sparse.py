"""Parametrizations of pruned layers, in full precision or binary: weights times a mask. How many
weights each layer keeps is computed in `pruning`; the methods decide when masks change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfront.trainables.layers.quantizers import PAIRS, sign


def top_k(values: Tensor, kept: int) -> Tensor:
    """A mask of exactly `kept` elements, the greatest of `values`; among equal values the first are
    taken."""
    if kept >= values.numel():
        return torch.ones_like(values, dtype=torch.bool)
    if kept <= 0:
        return torch.zeros_like(values, dtype=torch.bool)
    border = _rank(values, values.numel() - kept)
    mask = values > border
    missing = kept - int(mask.sum())
    if missing:
        equal = (values == border).flatten().nonzero().flatten()[:missing]
        mask = mask.flatten().index_fill(0, equal, True).view(values.shape)
    return mask


def _rank(values: Tensor, rank: int) -> float:
    """The rank-th smallest value. On a CPU numpy is five times as fast as torch."""
    flat = values.detach().reshape(-1)
    if flat.device.type == "cpu":
        return float(np.partition(flat.numpy(), rank - 1)[rank - 1])
    return float(flat.kthvalue(rank).values)


def fan_in(weight: Tensor) -> int:
    """The number of inputs of an output."""
    return weight[0].numel()


class _PopUp(torch.autograd.Function):
    """Forward w M(s), where M(s) is the mask of the greatest |s|; backward
    dL/ds = dL/d(w M) w sign(s) (edge-popup, Ramanujan et al., CVPR 2020; docs/methods.md 5.1).
    `product` is w M(s), `slope` is w sign(s)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, product: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        # A view, since several forward passes of one step share the product.
        return product.view_as(product)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None


class Popped:
    """Computes the masked weight w M(s) and caches it until scores or weights change, since attacks
    run the network many times between two steps. Fused optimizers do not increase the version of a
    tensor; methods therefore call `forget` after every step."""

    def __init__(self, cached: bool = True) -> None:
        self.cached = cached
        self._key: tuple[Any, ...] | None = None
        self._made: tuple[Tensor, Tensor] | None = None

    def forget(self) -> None:
        self._made = None

    def __call__(
        self,
        scores: Tensor,
        latent: Tensor,
        kept: int,
        quantized: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        key = (scores.data_ptr(), scores._version, latent.data_ptr(), latent._version, kept)
        if self._made is None or key != self._key or not self.cached:
            with torch.no_grad():
                weight = latent if quantized is None else quantized(latent)
                product = weight * top_k(scores.abs(), kept)
                self._made = product, weight * sign(scores)
            self._key = key
        weights: Tensor = _PopUp.apply(scores, *self._made)
        return weights


class RandomSubnetwork(nn.Module):
    """The weight w M(s) of an edge-popup layer (docs/methods.md 5.1): frozen random signs w, of
    which the `kept` with the greatest |s| are kept. The parameter of the layer is the scores s."""

    frozen: Tensor

    def __init__(self, weight: Tensor, magnitude: str) -> None:
        super().__init__()
        self.register_buffer("frozen", sign(weight.detach()))
        self.magnitude = magnitude
        self.kept = weight.numel()
        self.popped = Popped()

    @property
    def constant(self) -> float:
        """|w|: 1, or the Kaiming constant sqrt(2 / fan_in) (docs/methods.md 5.2). With `magnitude`
        kept or pruned, fan_in is multiplied by that share of the weights unless it is 0."""
        if self.magnitude == "binary":
            return 1.0
        share = self.kept / self.frozen.numel()
        scaled = {"kept": share, "pruned": 1 - share}.get(self.magnitude, 1.0)
        return math.sqrt(2 / (fan_in(self.frozen) * (scaled or 1.0)))

    def set_kept(self, kept: int) -> None:
        """Set how many weights are kept, and their magnitude, which may depend on it."""
        self.kept = kept
        self.frozen.copy_(sign(self.frozen) * self.constant)
        self.popped.forget()

    def forward(self, scores: Tensor) -> Tensor:
        return self.popped(scores, self.frozen, self.kept)

    def sum_parts(self, scores: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """(signs with 0 for pruned weights, their magnitude) of a layer that is evaluated by sums;
        None in training."""
        if self.training:
            return None
        weight = self(scores)
        if self.magnitude == "binary":
            return weight, None
        return weight.sign(), self.frozen.abs().flatten()[0]

    @torch.no_grad()
    def hard_parts(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        signs = sign(self.frozen) * top_k(scores.abs(), self.kept)
        if self.magnitude == "binary":
            return signs, None
        return signs, self.frozen.abs().flatten()[0].view((1,) * signs.dim())


@torch.no_grad()
def draw_scores(weight: Tensor, width: float | None) -> None:
    """Overwrite a weight with scores from U(-width, width); without a width, from
    U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch initialises the weights of a layer."""
    limit = 1 / math.sqrt(fan_in(weight)) if width is None else width
    weight.uniform_(-limit, limit)


class SparseWeight(nn.Module):
    """The weight mask * F(latent). F is the sign with B = 1, as in BinaryConnect (level W), or the
    identity (level S)."""

    mask: Tensor
    rounds: Tensor

    def __init__(self, weight: Tensor, binary: bool) -> None:
        super().__init__()
        self.binary = binary
        self.kept = weight.numel()
        self.register_buffer("mask", torch.ones_like(weight, dtype=torch.bool))
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))

    def quantized(self, latent: Tensor) -> Tensor:
        return PAIRS["bc"](latent, 1.0, None) if self.binary else latent

    def forward(self, latent: Tensor) -> Tensor:
        return self.quantized(latent) * self.mask

    def sum_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """(signs with 0 for pruned weights, None) of a layer that is evaluated by sums; None in
        training."""
        return None if self.training else (self(latent), None)

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.quantized(latent) * self.mask, None

    def set_kept(self, kept: int) -> None:
        self.kept = kept

    @torch.no_grad()
    def draw_mask(self) -> None:
        """Set a mask of `kept` weights at random."""
        self.mask.copy_(top_k(torch.rand_like(self.mask, dtype=torch.float32), self.kept))

    @torch.no_grad()
    def keep_greatest(self, latent: Tensor) -> None:
        """Set the mask of the `kept` greatest magnitudes in `latent`."""
        self.mask.copy_(top_k(latent.abs(), self.kept))

    @torch.no_grad()
    def drop_and_grow(self, latent: Tensor, drop: int, grow: int) -> None:
        """Drop the `drop` active weights of least magnitude and grow `grow` weights at random among
        those that were inactive before; a grown latent starts at -1e-3 or +1e-3."""
        inactive = ~self.mask
        active = int(self.mask.sum())
        magnitudes = torch.where(self.mask, latent.abs(), latent.new_full((), -1.0))
        stay = top_k(magnitudes, max(0, active - drop))
        draws = torch.where(inactive, torch.rand_like(latent), latent.new_full((), -1.0))
        new = top_k(draws, min(grow, latent.numel() - active))
        self.mask.copy_(stay | new)
        near_zero = 1e-3 * sign(torch.rand_like(latent) - 0.5)
        latent.copy_(torch.where(new, near_zero, latent))


class SignedConnections(SparseWeight):
    """The weight of Bayesian connectivity sampling (docs/methods.md 5.8): w_k = sign_k max(theta_k,
    0) with a fixed random sign, active while theta_k > 0; a binary one is sign_k while it is
    active. The parameter of the layer is theta."""

    signs: Tensor
    FIRST = 1e-5

    def __init__(self, weight: Tensor, binary: bool) -> None:
        super().__init__(weight, binary)
        self.register_buffer("signs", sign(weight.detach()))

    def quantized(self, latent: Tensor) -> Tensor:
        if self.binary:
            return self.signs * PAIRS["bc"](latent.clamp_min(0.0), 1.0, None)
        return self.signs * latent.clamp_min(0.0)

    @torch.no_grad()
    def rewire(self, theta: Tensor) -> None:
        """Deactivate connections with theta <= 0 and activate inactive ones at random, with
        theta = FIRST, so that `kept` are active."""
        self.mask.logical_and_(theta > 0)
        missing = self.kept - int(self.mask.sum())
        if missing:
            draws = torch.where(self.mask, theta.new_full((), -1.0), torch.rand_like(theta))
            new = top_k(draws, missing)
            self.mask.logical_or_(new)
            theta.copy_(torch.where(new, theta.new_full((), self.FIRST), theta))


class ScoredWeight(SparseWeight):
    """HYDRA's weight (docs/methods.md 5.8): dense in pre-training, then frozen and pruned by
    trained scores (`scoring`), then trained under the mask of the final scores."""

    def __init__(self, weight: Tensor, binary: bool) -> None:
        super().__init__(weight, binary)
        self.scores = nn.Parameter(torch.zeros_like(weight), requires_grad=False)
        self.scoring = False
        self.popped = Popped()

    def forward(self, latent: Tensor) -> Tensor:
        if self.scoring:
            return self.popped(self.scores, latent, self.kept, self.quantized)
        return super().forward(latent)

    @torch.no_grad()
    def start_scores(self, latent: Tensor) -> None:
        """Set the scores to s = sqrt(6 / fan_in) w / max |w| (docs/methods.md 5.8)."""
        largest = latent.abs().max().clamp_min(1e-12)
        self.scores.copy_(math.sqrt(6 / fan_in(latent)) * latent / largest)
        self.popped.forget()

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        mask = top_k(self.scores.abs(), self.kept) if self.scoring else self.mask
        return self.quantized(latent) * mask, None


class SharedValue(SparseWeight):
    """ATMC's weight with a codebook of one bit (docs/methods.md 5.8): mask * value * sign(latent),
    with one trained value per layer, once `shared`. Before that it is the latent, which the method
    projects to the mask after every step: pruned weights have a gradient and may return."""

    def __init__(self, weight: Tensor, binary: bool) -> None:
        super().__init__(weight, binary)
        self.value = nn.Parameter(torch.ones(()), requires_grad=False)
        self.shared = False

    def forward(self, latent: Tensor) -> Tensor:
        if not self.shared:
            return latent.view_as(latent)
        return PAIRS["bc"](latent, 1.0, None) * self.value.abs() * self.mask

    @torch.no_grad()
    def share(self, latent: Tensor) -> None:
        """Set the value to the mean |w| of the kept weights, the least-squares fit."""
        self.value.copy_(latent.abs()[self.mask].mean())

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.binary:
            return latent * self.mask, None
        scale = self.value.abs().view((1,) * latent.dim())
        return PAIRS["bc"](latent, 1.0, None) * self.mask, scale


class FactoredWeight(SharedValue):
    """ATMC's weight with its low-rank term, W = U V + C (Gui et al., NeurIPS 2019; docs/methods.md
    5.8), as the authors write it: with W as a matrix of n outputs and m inputs, (I + U) V + C if
    n <= m, V (I + U) + C otherwise. V, the parameter of the layer, starts as the weight, U and C at
    0 and they move once `factored`. U, V and C together have `kept` entries, and as many
    multiplications per position as W of that many entries."""

    def __init__(self, weight: Tensor, binary: bool) -> None:
        super().__init__(weight, binary)
        n, m = weight.flatten(1).shape
        self.from_left = n <= m
        self.factor = nn.Parameter(weight.new_zeros(min(n, m), min(n, m)), requires_grad=False)
        self.rest = nn.Parameter(torch.zeros_like(weight), requires_grad=False)

    @property
    def factored(self) -> bool:
        return self.factor.requires_grad

    @factored.setter
    def factored(self, on: bool) -> None:
        self.factor.requires_grad_(on)
        self.rest.requires_grad_(on)

    def forward(self, latent: Tensor) -> Tensor:
        v = latent.flatten(1)
        turned = self.factor @ v if self.from_left else v @ self.factor
        return latent + turned.view_as(latent) + self.rest

    @torch.no_grad()
    def keep_greatest(self, latent: Tensor) -> None:
        """Keep the `kept` greatest magnitudes of U, V and C together."""
        parts = (latent, self.factor, self.rest)
        together = torch.cat([part.detach().reshape(-1) for part in parts])
        kept = top_k(together.abs(), self.kept).split([part.numel() for part in parts])
        self.mask.copy_(kept[0].view_as(latent))
        for part, mask in zip(parts[1:], kept[1:], strict=True):
            part.mul_(mask.view_as(part))

    @torch.no_grad()
    def stored(self, latent: Tensor) -> int:
        """The number of entries of U, V and C."""
        return sum(int(x.count_nonzero()) for x in (latent, self.factor, self.rest))

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.forward(latent), None
