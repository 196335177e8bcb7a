"""Adversarial training: the loss of a run whose spec names an attack, and the check of such a spec.
The attacks are in `attacks`; robust accuracy is measured in `robustness`."""

from __future__ import annotations

from bitfront.trainables.attacks import EVALUATION_ATTACKS, TRAINING_ATTACKS, AdversarialLoss
from bitfront.trainables.attacks.base import Ball
from bitfront.trainables.data import DATASETS, pixel_statistics
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.own_code import shown
from bitfront.trainables.settings import NO_EPS
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training.run import Run


def adversarial_loss(run: Run) -> AdversarialLoss:
    """The loss of a training run whose spec names an attack."""
    task, kind = run.spec.task, TRAINING_ATTACKS.get(run.spec.adversary)
    attack, info = task.attack, DATASETS.get(task.dataset)
    assert attack.eps is not None
    step = attack.step or attack.eps * kind.default_step
    mean, std = pixel_statistics(info, task.normalize)
    ball = Ball.of(mean, std, attack.eps, step, run.device)
    return kind.make(task, ball, len(run.train), info)


def check_attack(spec: TrialSpec) -> None:
    """Raise a UserError where the attacks of the spec are impossible; nothing is trained for this
    check."""
    task, adversary = spec.task, spec.adversary
    attack = task.attack
    if not METHODS.get(spec.method).from_weights and task.pretrain.active:
        raise UserError(
            f"pretrain: {shown(spec.method)} prunes random weights: there is nothing to start from"
        )
    if adversary == "none" and not attack.evaluate:
        return
    if attack.eps is None:
        why = f" ({shown(spec.method)} trains against attacks)" if attack.train == "none" else ""
        raise UserError(f"attack.eps: {NO_EPS.removeprefix('eps ')}{why}")
    info = DATASETS.get(task.dataset)
    if info.kind != "classification" or len(info.shape) != 3:
        raise UserError(f"attack: attacks are on images with a label, {task.dataset} has none")
    for name in attack.evaluate:
        least = EVALUATION_ATTACKS.get(name).least_classes
        if info.classes < least:
            raise UserError(
                f"attack.evaluate: {name} needs {least} classes or more, {task.dataset} has "
                f"{info.classes}"
            )
    if adversary == "none":
        return
    if task.loss.distill.kind != "none":
        raise UserError("attack.train: a teacher's loss and one against attacks exclude each other")
    TRAINING_ATTACKS.get(adversary).check(task, info)
