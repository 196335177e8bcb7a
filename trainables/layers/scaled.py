"""Signed weights of a method with an optimizer of its own, with ReActNet's scale per channel."""

from __future__ import annotations

import torch
from torch import Tensor

from bitfront.trainables.layers.latents import SignedWeight
from bitfront.trainables.layers.weights import Times, mean_magnitude


class ScaledSign(SignedWeight):
    """F = alpha_c sign(w), B = 1, with alpha_c = mean |w| of the output channel, which has no
    gradient (the parameter scaling of ReActNet, docs/methods.md 1.8, 3.3)."""

    def trained(self, latent: Tensor) -> Tensor:
        weight: Tensor = Times.apply(super().trained(latent), _alpha(latent))
        return weight

    def forward(self, latent: Tensor) -> Tensor:
        if self.training or self.shared.as_trained:
            return super().forward(latent)
        return self.sign(latent) * _alpha(latent)

    def sum_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """(signs, alpha) of a layer that is evaluated by sums; None in training."""
        soft = self.training or self.shared.as_trained
        return None if soft else (self.sign(latent), _alpha(latent))

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.sign(latent), _alpha(latent)


def _alpha(latent: Tensor) -> Tensor:
    found = mean_magnitude(latent, "channel")
    assert found is not None
    return found
