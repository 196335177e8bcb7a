"""A part of the user's own that is read for every batch: too large for memory, or different each
time it is read (augmented). Draws of random transforms depend on the seed of the trial alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfront.trainables.data.augmentations import AUGMENTATIONS
from bitfront.trainables.data.datasets import DatasetInfo, normalise
from bitfront.trainables.data.own.reading import Source, check_same, example
from bitfront.trainables.data.parts import Part
from bitfront.trainables.data.streams import stream_workers

if TYPE_CHECKING:
    import torch

# (index of an example, seed of its random transform).
Drawn = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Examples(Part):
    """Examples by number, read when a batch is made. `y` are the labels that a split keeps in
    proportion; all 0 where they are not known without reading everything."""

    items: Any
    index: np.ndarray
    y: torch.Tensor
    info: DatasetInfo
    source: Source
    device: torch.device | str = "cpu"

    def to(self, device: torch.device | str) -> Examples:
        return replace(self, device=device)

    def subset(self, indices: np.ndarray | torch.Tensor) -> Examples:
        chosen = np.asarray(indices)
        return replace(self, index=self.index[chosen], y=self.y[chosen])

    def joined(self, other: Examples) -> Examples:
        """This part followed by another one."""
        import torch
        from torch.utils.data import ConcatDataset

        index = np.concatenate([self.index, len(self.items) + other.index])
        items: Any = ConcatDataset([self.items, other.items])
        return replace(self, items=items, index=index, y=torch.cat([self.y, other.y]))

    def batches(
        self,
        groups: Sequence[torch.Tensor],
        augmentation: str = "none",
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        import torch
        from torch.utils.data import DataLoader

        augment = AUGMENTATIONS.get(augmentation)
        drawn: list[list[Drawn]] = []
        # Without a generator, in evaluation, every example is drawn in the same way each time.
        drawing = generator or torch.Generator().manual_seed(0)
        for group in groups:
            seeds = torch.randint(2**31, (len(group),), generator=drawing).tolist()
            drawn.append(list(zip(self.index[group.numpy()].tolist(), seeds, strict=True)))
        loader: Any = DataLoader(
            _Reader(self.items, self.source, self.info),  # type: ignore[arg-type]
            batch_sampler=drawn,
            num_workers=stream_workers(),
            pin_memory=torch.device(self.device).type == "cuda",
            generator=torch.Generator(),
        )
        for read, y in loader:
            x = normalise(read.to(self.device, non_blocking=True), self.info)
            yield (x if generator is None else augment(x, generator)), y.to(self.device)


class _Reader:
    """The dataset of the DataLoader: its index is a `Drawn`."""

    def __init__(self, items: Any, source: Source, info: DatasetInfo) -> None:
        self.items, self.source = items, source
        self.shape, self.integers = info.shape, info.integers

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, drawn: Drawn) -> tuple[torch.Tensor, torch.Tensor]:
        index, seed = drawn
        with seeded(seed):
            x, y = example(self.items, index, self.source)
        check_same(x, x.new_empty(self.shape), index, "x", self.source)
        if self.integers and x.is_floating_point():
            raise self.source.refuse(f"x of example {index} is of floats, the others of integers")
        return x, y


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the random numbers of torch, numpy and Python start from this seed; afterwards they
    go on where they were."""
    import torch

    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - transforms of users draw from it
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
