"""Shuffled batches of a part of a dataset; a resumed run gets the batches of the uninterrupted one.
How a part is read is in `datasets` and `streams`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data.augmentations import AUGMENTATIONS, crop_flip_index, cut_out, unmoved
from bitfront.trainables.data.parts import Arrays, Part
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Visit:
    """A batch `x` with the indices `ids` of its images in the part. `places` say how each image was
    shifted and mirrored: the indices of its pixels in the image with a margin."""

    x: torch.Tensor
    ids: torch.Tensor
    places: torch.Tensor


class Batches:
    """Shuffled training batches; each iteration over it is one epoch.

    Two objects with the same part and seed give the same batches, on any device. The state is that
    at the start of the next epoch, whether or not the present one is iterated to its end.
    """

    def __init__(
        self,
        part: Part,
        batch_size: int,
        seed: int,
        augmentation: str = "none",
        drop_last: bool = True,
        visits: bool = False,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        """`visits`: batches are `Visit`s, possible where images are only shifted and mirrored.
        `share`: (number of this worker, workers); a worker gets every n-th example of a batch and
        augments it by its own draws."""
        import torch

        if batch_size < 2 or len(part) < 2:
            raise UserError(
                f"batches of {batch_size} from {len(part)} examples: batch normalisation needs "
                "at least 2 examples in a batch"
            )
        self.part = part
        # With fewer examples than a batch, drop_last would leave nothing to train on.
        self.batch_size = min(batch_size, len(part))
        self.drop_last = drop_last
        self.visits = visits
        self.share = share
        AUGMENTATIONS.get(augmentation)
        self.augmentation = augmentation
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        full, rest = divmod(len(self.part), self.batch_size)
        # A last batch of one example is dropped in any case: its batch statistics are undefined.
        return full + (rest > 1 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Any, torch.Tensor]]:
        import torch

        # Exactly one draw per epoch from the generator that is checkpointed; augmentation draws
        # from another. It is made here, not at the first batch, so that the state is from now on
        # that of the next epoch.
        epoch_seed = int(torch.randint(2**62, (), generator=self._generator))
        return self._epoch(epoch_seed)

    def _epoch(self, seed: int) -> Iterator[tuple[Any, torch.Tensor]]:
        import torch

        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.part), generator=generator)
        groups = order.split(self.batch_size)[: len(self)]
        worker, workers = self.share
        if workers > 1:
            groups = tuple(group[worker::workers] for group in groups)
            generator.manual_seed(seed + worker)
        if not self.visits:
            yield from self.part.batches(groups, self.augmentation, generator)
            return
        for group, (x, y) in zip(groups, self.part.batches(groups), strict=True):
            n, _, height, width = x.shape
            if self.augmentation == "crop-flip":
                places = crop_flip_index(n, height, width, generator, x.device)
                seen = cut_out(x, places)
            else:
                places = unmoved(n, height, width, x.device)
                seen = x
            yield Visit(seen, group.to(x.device), places), y

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        # A checkpoint may have been mapped to a GPU; generator states are CPU bytes.
        self._generator.set_state(state["generator"].cpu())


def in_order(part: Part, batch_size: int) -> Iterator[tuple[Any, torch.Tensor]]:
    """Every example once, unshuffled and unaugmented: for evaluation."""
    if not isinstance(part, Arrays):
        import torch

        yield from part.batches(torch.arange(len(part)).split(batch_size))
        return
    for start in range(0, len(part), batch_size):  # views, nothing is copied
        yield part.x[start : start + batch_size], part.y[start : start + batch_size]
