"""Attacks on images, a family per file: losses that train against one, and attacks under which
robust accuracy is measured. New files in this folder are imported automatically; listing attacks
does not import torch. They are used by `training.adversarial` and `training.robustness`."""

from bitfront.trainables.attacks.base import (
    EVALUATION_ATTACKS,
    TRAINING_ATTACKS,
    AdversarialLoss,
    EvaluationAttack,
)

__all__ = ["EVALUATION_ATTACKS", "TRAINING_ATTACKS", "AdversarialLoss", "EvaluationAttack"]
