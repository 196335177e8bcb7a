"""TRADES: the loss of clean images plus the divergence of the outputs for attacked ones (Zhang et
al., ICML 2019; docs/methods.md 5.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.attacks.base import (
    TRAINING_ATTACKS,
    AdversarialLoss,
    attacking,
    sign_steps,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

# Standard deviation of the noise on pixels in [0, 1] that the attack starts from.
NOISE = 0.001


@TRAINING_ATTACKS.register
class Trades(AdversarialLoss):
    """CE(f(x), y) + beta KL(f(x) || f(x')), where x' maximizes the KL divergence in the ball."""

    name = "trades"
    doc = "clean loss and agreement with the attacked image"

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        import torch

        kl_div = torch.nn.functional.kl_div
        with attacking(model, "eval", x.device):
            with torch.no_grad():
                clean = model(x).float().softmax(1)

            def losses(logits: Tensor) -> Tensor:
                return kl_div(logits.log_softmax(1), clean, reduction="none").sum(1)

            assert self.attack.eps is not None
            noise = NOISE / self.attack.eps * self.ball.eps * torch.randn_like(x)
            found = sign_steps(model, losses, x, x + noise, self.ball, self.attack.steps)
        logits, attacked = model(x), model(found)
        self.count(attacked, y)
        apart = kl_div(attacked.log_softmax(1), logits.softmax(1), reduction="batchmean")
        return self.cross_entropy(logits, y) + self.attack.beta * apart
