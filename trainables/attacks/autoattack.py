"""AutoAttack in evaluation, by its authors' own code (Croce and Hein, ICML 2020). It needs more
than a thousand forward passes and is therefore measured after the last epoch only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.attacks.base import EVALUATION_ATTACKS, EvaluationAttack

if TYPE_CHECKING:
    from torch import Tensor, nn

BATCH = 250
SEED = 0


def _run(network: nn.Module, pixels: Tensor, y: Tensor, eps: float, classes: int) -> Tensor:
    """The attacked pixels of the standard version, the worst of APGD-CE, targeted APGD-DLR,
    targeted FAB and Square (docs/methods.md 5.5, 5.12)."""
    from pyautoattack import AutoAttack

    suite = AutoAttack(
        network, norm="Linf", eps=eps, version="standard", seed=SEED, device=pixels.device
    )
    # Nine target classes, or as many as there are.
    suite.fab.n_target_classes = suite.apgd_targeted.n_target_classes = min(9, classes - 1)
    found = suite.run_standard_evaluation(pixels, y, batch_size=BATCH)
    images: Tensor = found[0] if isinstance(found, tuple) else found
    return images


EVALUATION_ATTACKS.register(
    EvaluationAttack("autoattack", "AutoAttack", _run, every_epoch=False, least_classes=4)
)
