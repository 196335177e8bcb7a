"""Running statistics of batch norms: estimated anew, kept, restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bitfront.trainables.data import Part, in_order
from bitfront.trainables.layers.treatments import STARTING_EXAMPLES, starting_shifts

# The number of examples for running statistics, whose error falls with its root
# (docs/methods.md 4.8 uses 200 batches).
RECALIBRATION_EXAMPLES = 4096


def running_norms(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """The batch norms of a network that keep running statistics."""
    return [
        m
        for m in model.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats
    ]


def recalibrate(model: nn.Module, part: Part, batch_size: int) -> None:
    """Estimate batch-norm statistics anew, as plain averages over training examples."""
    recalibrate_on(model, (x for x, _ in in_order(part, batch_size)), batch_size)


@torch.no_grad()
def recalibrate_on(model: nn.Module, batches: Iterable[Any], batch_size: int) -> None:
    """Estimate batch-norm statistics anew, as plain averages over batches of inputs. Only the norms
    are in training mode, so that the weights are those of evaluation."""
    model.eval()
    norms = running_norms(model)
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    examples = 0
    for x in batches:
        # A short last batch would count as much as a full one.
        if len(x) < batch_size and examples:
            break
        model(x)
        examples += len(x)
        if examples >= RECALIBRATION_EXAMPLES:
            break
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, batch norms use the statistics of the batch and everything else is in evaluation
    mode; mode and running statistics are restored when the block ends."""
    was_training = model.training
    with kept_statistics(model), torch.no_grad():
        model.eval()
        for norm in running_norms(model):
            norm.train()
        try:
            yield
        finally:
            model.train(was_training)


def start_shifts(model: nn.Module, part: Part) -> None:
    """Set the shifts of inputs to the means that these inputs have on some training examples."""
    some = part.subset(torch.arange(min(len(part), STARTING_EXAMPLES)))
    x, _ = next(iter(in_order(some, STARTING_EXAMPLES)))
    with batch_statistics(model), starting_shifts(model) as any_shifts:
        if any_shifts:
            model(x)


@contextmanager
def kept_statistics(model: nn.Module) -> Iterator[None]:
    """Batch-norm statistics are restored when the block ends."""
    kept = [
        (norm, {k: v.clone() for k, v in norm.named_buffers()}) for norm in running_norms(model)
    ]
    try:
        yield
    finally:
        for norm, buffers in kept:
            for name, value in buffers.items():
                getattr(norm, name).copy_(value)
