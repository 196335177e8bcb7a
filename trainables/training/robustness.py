"""Robust accuracy: the share of images that are classified correctly before an attack and after it.
The attacks are in `attacks`; every robust accuracy carries the name of its attack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from bitfront.trainables.attacks import EVALUATION_ATTACKS
from bitfront.trainables.data import DATASETS, Part, in_order, pixel_statistics
from bitfront.trainables.task import Task

ATTACK_BATCH = 250
SEED = 0


class OnPixels(nn.Module):
    """A network preceded by its normalisation: it takes pixels in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, task: Task, device: torch.device) -> None:
        super().__init__()
        self.model = model
        mean, std = pixel_statistics(DATASETS.get(task.dataset), task.normalize)
        self.register_buffer("mean", torch.tensor(mean, device=device).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, device=device).view(1, -1, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model((pixels - self.mean) / self.std)
        return logits

    def pixels(self, x: Tensor) -> Tensor:
        return (x * self.std + self.mean).clamp(0, 1)


@contextmanager
def _undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the attacks draw the same random numbers every time; afterwards the network, its
    gradients and the random generators are as before."""
    was_training = model.training
    learning = [p for p in model.parameters() if p.requires_grad]
    numpy_state = np.random.get_state()  # noqa: NPY002
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002
        for parameter in learning:
            parameter.requires_grad_(False)
        model.eval()
        try:
            yield
        finally:
            for parameter in learning:
                parameter.requires_grad_(True)
            model.train(was_training)
            np.random.set_state(numpy_state)  # noqa: NPY002


def robust_accuracies(
    model: nn.Module, part: Part, task: Task, attacks: Sequence[str]
) -> dict[str, float]:
    """`val_robust_ATTACK` of each attack: the share of the first `attack.examples` images of the
    part that are classified correctly before the attack and after it."""
    eps = task.attack.eps
    assert eps is not None
    some = part.first(task.attack.examples)
    classes = DATASETS.get(task.dataset).classes
    device = some.y.device
    right = dict.fromkeys(attacks, 0)
    with _undisturbed(model, device):
        network = OnPixels(model, task, device).eval()
        for x, y in in_order(some, ATTACK_BATCH):
            pixels = network.pixels(x)
            with torch.no_grad():
                fine = network(pixels).argmax(1) == y
            for attack in attacks:
                found = EVALUATION_ATTACKS.get(attack).run(network, pixels, y, eps, classes)
                with torch.no_grad():
                    right[attack] += int((fine & (network(found).argmax(1) == y)).sum())
    return {EVALUATION_ATTACKS.get(a).metric: count / len(some) for a, count in right.items()}
