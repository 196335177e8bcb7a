"""A part of a dataset that is too large for memory: image files that the worker processes of a
DataLoader decode during training, normalised and augmented on the training device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfront.trainables.data.augmentations import AUGMENTATIONS, crop_boxes
from bitfront.trainables.data.datasets import DatasetInfo, normalise
from bitfront.trainables.data.parts import Part
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    import torch

# (index of an image, seed of its random crop; None: the square in its middle is taken).
Drawn = tuple[int, int | None]


def decode(file: Path | str, size: int, seed: int | None = None) -> torch.Tensor:
    """An image file as uint8 pixels (3, size, size): the square in its middle or, with a seed, a
    random part, which is cut out before it is resized, at full resolution."""
    import torch
    from PIL import Image

    try:
        with Image.open(file) as opened:
            image = opened.convert("RGB")
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: not an image, or damaged ({error})") from None
    width, height = image.size
    mirrored = False
    if seed is None:
        across = down = float(min(width, height))
        left, top = (width - across) / 2, (height - down) / 2
    else:
        drawn = crop_boxes(1, height, width, torch.Generator().manual_seed(seed))
        left, top, across, down = (float(d) for d in drawn[:4])
        mirrored = bool(drawn[4])
    if (left, top, across, down) != (0, 0, size, size):
        box = (left, top, left + across, top + down)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box)
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


@dataclass(frozen=True, eq=False)
class Streamed(Part):
    """Image files and their labels; pixels are read when a batch is made."""

    files: np.ndarray
    y: torch.Tensor
    info: DatasetInfo
    device: torch.device | str = "cpu"

    def to(self, device: torch.device | str) -> Streamed:
        return replace(self, device=device)

    def subset(self, indices: np.ndarray | torch.Tensor) -> Streamed:
        index = np.asarray(indices)
        return replace(self, files=self.files[index], y=self.y[index])

    def batches(
        self,
        groups: Sequence[torch.Tensor],
        augmentation: str = "none",
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        import torch
        from torch.utils.data import DataLoader

        augment = AUGMENTATIONS.get(augmentation)
        crops = augmentation == "resized-crop-flip" and generator is not None
        drawn: list[list[Drawn]] = []
        for group in groups:
            seeds: list[int | None] = [None] * len(group)
            if crops:
                seeds = torch.randint(2**62, (len(group),), generator=generator).tolist()
            drawn.append(list(zip(group.tolist(), seeds, strict=True)))
        # Without a generator the loader would draw a seed from the global one.
        loader: Any = DataLoader(
            _Pixels(self.files, self.info.shape[-1]),  # type: ignore[arg-type]
            batch_sampler=drawn,
            num_workers=stream_workers(),
            pin_memory=torch.device(self.device).type == "cuda",
            generator=torch.Generator(),
        )
        for group, pixels in zip(groups, loader, strict=True):
            x = normalise(pixels.to(self.device, non_blocking=True), self.info)
            if generator is not None and not crops:
                x = augment(x, generator)
            yield x, self.y[group].to(self.device)


class _Pixels:
    """The dataset of the DataLoader: its index is a `Drawn`, its item the decoded pixels."""

    def __init__(self, files: np.ndarray, size: int) -> None:
        self.files = files
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, drawn: Drawn) -> torch.Tensor:
        index, seed = drawn
        return decode(str(self.files[index]), self.size, seed)


def stream_workers() -> int:
    """The number of processes that decode images: as many as the trial has threads; 0 with one
    thread, where the training process decodes."""
    import torch

    threads = torch.get_num_threads()
    return threads if threads > 1 else 0
