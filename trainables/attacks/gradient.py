"""FGSM (one step of eps) and PGD (steps of eps/4) along the sign of the gradient, in evaluation,
computed by Foolbox (docs/methods.md 5.12)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bitfront.trainables.attacks.base import EVALUATION_ATTACKS, EvaluationAttack

if TYPE_CHECKING:
    from torch import Tensor, nn


def _run(
    steps: int | None, network: nn.Module, pixels: Tensor, y: Tensor, eps: float, _classes: int
) -> Tensor:
    """The attacked pixels of FGSM (`steps` is None) or of PGD with `steps` steps."""
    from foolbox import attacks
    from foolbox.models.pytorch import PyTorchModel

    attack: Any = attacks.FGSM()
    if steps is not None:
        attack = attacks.LinfPGD(abs_stepsize=eps / 4, steps=steps)
    wrapped = PyTorchModel(network, bounds=(0, 1), device=pixels.device)
    found: Tensor
    _, found, _ = attack(wrapped, pixels, y, epsilons=eps)
    return found


EVALUATION_ATTACKS.register(EvaluationAttack("fgsm", "FGSM", partial(_run, None)))
for _steps in (10, 20, 50):
    EVALUATION_ATTACKS.register(
        EvaluationAttack(f"pgd{_steps}", f"PGD-{_steps}", partial(_run, _steps))
    )
