"""The parts of a dataset in memory, and the split into training and validation part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from bitfront.trainables.data.augmentations import AUGMENTATIONS
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    import torch

# Numbers of random streams: the uses of one seed must not draw the same numbers.
_SPLIT, _TAKE, _ORDER = 0, 1, 3


class Part:
    """One part of a dataset."""

    y: torch.Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device | str) -> Self:
        raise NotImplementedError

    def laid_out(self, layout: torch.memory_format) -> Self:
        """The part with its images in this memory format, so that no batch has to be converted."""
        return self

    def subset(self, indices: np.ndarray | torch.Tensor) -> Self:
        raise NotImplementedError

    def joined(self, other: Self) -> Self:
        """This part followed by another one."""
        raise NotImplementedError

    def first(self, count: int) -> Self:
        """At most `count` examples, the ones at the beginning."""
        return self if len(self) <= count else self.subset(np.arange(count))

    def batches(
        self,
        groups: Sequence[torch.Tensor],
        augmentation: str = "none",
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[Any, torch.Tensor]]:
        """A batch (x, y) for every group of indices. Augmentation draws from the generator; without
        a generator nothing is augmented."""
        raise NotImplementedError

    def take(self, n: int, seed: int) -> Self:
        """n examples drawn with the same proportions of classes, for searches on part of the
        data."""
        if not 0 < n <= len(self):
            raise UserError(f"cannot take {n} examples of {len(self)}")
        if n == len(self):
            return self
        return self.subset(stratified(_strata(self.y), n, (seed, _TAKE)))


@dataclass(frozen=True, eq=False)
class Arrays(Part):
    """A part whose examples and labels are in memory, on one device."""

    x: torch.Tensor
    y: torch.Tensor

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: torch.device | str) -> Arrays:
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def subset(self, indices: np.ndarray | torch.Tensor) -> Arrays:
        import torch

        index = torch.as_tensor(indices, dtype=torch.int64, device=self.device)
        x, y = self.x.index_select(0, index), self.y.index_select(0, index)
        return replace(self, x=x, y=y)

    def first(self, count: int) -> Arrays:
        return replace(self, x=self.x[:count], y=self.y[:count])  # views, nothing is copied

    def joined(self, other: Arrays) -> Arrays:
        import torch

        return replace(self, x=torch.cat([self.x, other.x]), y=torch.cat([self.y, other.y]))

    def laid_out(self, layout: torch.memory_format) -> Arrays:
        import torch

        if self.x.dim() != 4 or layout is torch.preserve_format:
            return self
        return replace(self, x=self.x.contiguous(memory_format=layout))

    def batches(
        self,
        groups: Sequence[torch.Tensor],
        augmentation: str = "none",
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        augment = AUGMENTATIONS.get(augmentation)
        for group in groups:
            index = group.to(self.device)
            x = self.x.index_select(0, index)
            yield (x if generator is None else augment(x, generator)), self.y.index_select(0, index)


@dataclass(frozen=True, eq=False)
class TaskRow(Arrays):
    """The tasks of continual learning: each has the same examples, with its own fixed permutation
    of the pixels. `seen` of them have begun."""

    tasks: int = 1
    seen: int = 1

    def up_to(self, task: int) -> TaskRow:
        """The tasks 0 to `task`, which are evaluated while `task` is learned."""
        return replace(self, seen=task + 1)

    def of_task(self, task: int) -> Arrays:
        import torch

        flat = self.x.flatten(1)
        # The seed of a task's permutation is part of the dataset.
        order = np.argsort(np.random.PCG64((task, _ORDER)).random_raw(flat.shape[1]), kind="stable")
        index = torch.as_tensor(order, device=self.device)
        return Arrays(flat.index_select(1, index).view(self.x.shape), self.y)


def _strata(y: torch.Tensor) -> np.ndarray:
    """The classes that a stratified draw keeps in proportion: the labels, or one class for targets
    of regression and for several labels per example."""
    labels: np.ndarray = y.cpu().numpy()
    one = y.is_floating_point() or labels.ndim > 1
    return np.zeros(len(labels), dtype=int) if one else labels


def stratified(labels: np.ndarray, n: int, seed: tuple[int, ...]) -> np.ndarray:
    """Sorted indices of n examples drawn at random, with the proportions of the classes kept to
    within one example."""
    # The order is that of raw draws: of numpy's random API only the raw stream of a bit generator
    # is guaranteed to be the same in all versions and on all machines (NEP 19).
    order = np.argsort(np.random.PCG64(seed).random_raw(len(labels)), kind="stable")
    classes, sizes = np.unique(labels, return_counts=True)
    quota, remainder = np.divmod(sizes * n, len(labels))
    quota[np.argsort(-remainder, kind="stable")[: n - int(quota.sum())]] += 1
    shuffled = labels[order]
    chosen = [order[shuffled == c][:k] for c, k in zip(classes, quota, strict=True)]
    return np.sort(np.concatenate(chosen))


P = TypeVar("P", bound=Part)


def split(arrays: P, val_fraction: float, seed: int) -> tuple[P, P]:
    """(training part, validation part): a stratified partition of the examples, the same on every
    machine."""
    n = round(len(arrays) * val_fraction)
    if not 0 < n < len(arrays):
        raise UserError(
            f"val_fraction {val_fraction} of {len(arrays)} examples leaves an empty part",
            "a fraction strictly between 0 and 1, for example 0.1",
        )
    is_val = np.zeros(len(arrays), dtype=bool)
    is_val[stratified(_strata(arrays.y), n, (seed, _SPLIT))] = True
    return arrays.subset(np.flatnonzero(~is_val)), arrays.subset(np.flatnonzero(is_val))
