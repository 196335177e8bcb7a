"""The optimizer of a task and its learning rate."""

from __future__ import annotations

import torch
from torch import nn

from bitfront.trainables.settings import LearningRateSpec, OptimizerSpec
from bitfront.trainables.training.schedules.values import Schedule, Steps


class LearningRate:
    """The rate as a function of the fraction of training, warm-up included."""

    def __init__(self, lr: float, spec: LearningRateSpec) -> None:
        self.warmup = spec.warmup
        self.path: Steps | Schedule
        if spec.shape == "steps":
            self.path = Steps(lr, tuple(spec.at), spec.factor)
        else:
            self.path = Schedule(lr, lr * spec.end_factor, spec.shape, begin=spec.warmup)

    def at(self, passed: float) -> float:
        ramp = min(1.0, passed / self.warmup) if self.warmup > 0 else 1.0
        # A first step at rate 0 would be wasted.
        return self.path.at(passed) * max(ramp, 1e-3)


def make_optimizer(params: list[nn.Parameter], spec: OptimizerSpec) -> torch.optim.Optimizer:
    """The torch optimizer that a specification names."""
    if spec.name == "sgd":
        return torch.optim.SGD(
            params,
            spec.lr,
            spec.momentum,
            weight_decay=spec.weight_decay,
            nesterov=spec.nesterov and spec.momentum > 0,
            fused=True,
        )
    kind = torch.optim.Adam if spec.name == "adam" else torch.optim.AdamW
    return kind(params, spec.lr, weight_decay=spec.weight_decay, fused=True)
