"""PGD, projected gradient descent, in training (Madry et al., ICLR 2018; docs/methods.md 5.8)."""

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


@TRAINING_ATTACKS.register
class PGDTraining(AdversarialLoss):
    """CE(f(x + d), y) of min_w E max_{|d| <= eps} CE(f(x + d), y); PGD approximates the maximum."""

    name = "pgd"
    doc = "on the worst images PGD finds"

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        import torch

        attack = self.attack

        def losses(logits: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(logits, y, reduction="none")

        with attacking(model, attack.norms, x.device):
            start = self.ball.uniform(x)
            found = sign_steps(model, losses, x, start, self.ball, attack.steps, attack.iterate)
        logits = model(found)
        self.count(logits, y)
        return self.cross_entropy(logits, y)
