"""FGSM (one step of eps) and PGD (steps of eps/4) along the sign of the gradient, in evaluation,
computed by Foolbox (docs/methods.md 5.12)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bitfront.trainables.attacks.base import EVALUATION_ATTACKS, EvaluationAttack

if TYPE_CHECKING:
    from torch import Tensor, nn


def _run(
    steps: int | None, network: nn.Module, pixels: Tensor, y: Tensor, eps: float, classes: int
) -> Tensor:
    """The attacked pixels of FGSM (`steps` is None) or of PGD with `steps` steps."""
    import foolbox

    attack: Any = foolbox.attacks.LinfFastGradientAttack()
    if steps is not None:
        attack = foolbox.attacks.LinfPGD(abs_stepsize=eps / 4, steps=steps)
    wrapped = foolbox.PyTorchModel(network, bounds=(0, 1), device=pixels.device)
    _, found, _ = attack(wrapped, pixels, y, epsilons=eps)
    return found


EVALUATION_ATTACKS.register(EvaluationAttack("fgsm", "FGSM", partial(_run, None)))
for _steps in (10, 20, 50):
    EVALUATION_ATTACKS.register(
        EvaluationAttack(f"pgd{_steps}", f"PGD-{_steps}", partial(_run, _steps))
    )
