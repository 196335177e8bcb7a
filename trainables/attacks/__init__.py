"""Attacks on images, a family per file: losses that train against one, and attacks under which
robust accuracy is measured. A new file in this folder is found by itself; listing attacks does not
import torch. When they are used is decided in `training.adversarial` and `training.robustness`."""

from bitfront.trainables.attacks.base import (
    EVALUATION_ATTACKS,
    TRAINING_ATTACKS,
    AdversarialLoss,
    EvaluationAttack,
)

__all__ = ["EVALUATION_ATTACKS", "TRAINING_ATTACKS", "AdversarialLoss", "EvaluationAttack"]
