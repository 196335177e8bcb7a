"""Data-parallel training: workers that share every batch and keep identical networks. The code that
starts the workers makes the process group; nothing here knows Ray."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bitfront.trainables.attacks import TRAINING_ATTACKS
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import TrialSpec


class Peers:
    """All workers of a training run, this one included.

    They begin with the same weights and random state, and each takes an equal share of every batch.
    Gradients are averaged before they are used, so that every update is that of the whole batch;
    random draws of a method for its weights are the same on all workers. Batch norms use the
    statistics of their worker's share; their running statistics are averaged after every epoch.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        self._average([p.grad for p in parameters if p.grad is not None])

    def average_statistics(self, norms: Iterable[nn.modules.batchnorm._BatchNorm]) -> None:
        kept = [t for norm in norms for t in (norm.running_mean, norm.running_var)]
        self._average([t for t in kept if t is not None])

    def mean(self, value: Tensor) -> Tensor:
        shared = value.detach().clone()
        self._average([shared])
        return shared

    def check_same(self, model: nn.Module) -> None:
        """Raise a RuntimeError where the weights of the workers differ, since averages of their
        gradients would be meaningless."""
        digest = hashlib.sha256()
        for tensor in model.parameters():
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        found: list[str | None] = [None] * self.count
        dist.all_gather_object(found, digest.hexdigest())
        if len(set(found)) > 1:
            raise RuntimeError("the workers' weights differ: are their machines of one kind?")

    def _average(self, tensors: list[Tensor]) -> None:
        """Replace the tensors by their means over the workers, in one message."""
        if not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.count
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, mean in zip(tensors, flat.split(sizes), strict=True):
            tensor.copy_(mean.view_as(tensor))


def check_shareable(spec: TrialSpec, workers: int) -> None:
    """Raise a UserError where the spec cannot be trained by this number of workers."""
    if workers < 1:
        raise UserError(f"--workers {workers}: give at least 1")
    if spec.task.batch_size % workers:
        raise UserError(
            f"--workers {workers}: a batch of {spec.task.batch_size} cannot be shared equally",
            "the batch stays the recipe's, whatever the number of workers",
        )
    if spec.task.batch_size // workers < 2:
        raise UserError(f"--workers {workers}: batch norms need 2 examples a worker")
    visits = spec.adversary != "none" and TRAINING_ATTACKS.get(spec.adversary).visits
    if workers > 1 and visits:
        raise UserError(
            f"{spec.adversary} keeps a perturbation for every example, on the worker that saw it "
            "last: it trains on one worker"
        )
