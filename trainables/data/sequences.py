"""Image sequences with one target each, for object tracking: a box per frame, around which
exemplars and search regions are cut out (docs/methods.md 4.7).

Training sequences are in the layout of GOT-10k, test sequences in that of OTB; both have one folder
per sequence with its frames and a text file of boxes. One reader serves them and the polygons of
VOT."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as List
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfront.trainables.data.datasets import (
    DATASETS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    DatasetInfo,
    Family,
    normalise,
)
from bitfront.trainables.data.parts import Part
from bitfront.trainables.data.sequence_files import TRUTH_FILES, Sequence, read_sequences
from bitfront.trainables.data.streams import stream_workers
from bitfront.trainables.errors import MissingDataError, UserError
from bitfront.trainables.registry import is_count

if TYPE_CHECKING:
    import torch

CONTEXT = 0.5
SEARCH_SIZE = 255
# Frames of a pair are at most this far apart.
MAX_GAP = 100
# Augmentation of a pair: the search region is shifted by up to 8 of 255 pixels, and the sides of
# both regions are changed by up to a twentieth.
MAX_SHIFT, MAX_STRETCH = 8 / 255, 0.05

# A square to cut out: sequence, frame, its middle (x, y) and its side, in pixels of the frame.
Cut = tuple[int, int, float, float, float]


def exemplar_size(search_size: int) -> int:
    """The side of an exemplar: 127 for search regions of 255."""
    return search_size // 2


def context_side(size: np.ndarray) -> np.ndarray:
    """The side sqrt((w + p)(h + p)), p = (w + h) / 2, of the square that is cut out around a target
    of width w and height h: a context of p / 2 is added on every side (SiamFC, docs/methods.md
    4.7)."""
    p = CONTEXT * size.sum(-1)
    side: np.ndarray = np.sqrt((size[..., 0] + p) * (size[..., 1] + p))
    return side


@dataclass(frozen=True, eq=False)
class Sequences(Part):
    """The sequences of one part. An example is a pair of regions of one sequence; an epoch has one
    pair per sequence."""

    items: tuple[Sequence, ...]
    y: torch.Tensor
    info: DatasetInfo
    device: torch.device | str = "cpu"

    @classmethod
    def of(cls, items: List[Sequence], info: DatasetInfo) -> Sequences:
        import torch

        return cls(tuple(items), torch.zeros(len(items), dtype=torch.int64), info)

    @property
    def sizes(self) -> tuple[int, int]:
        """(side of an exemplar, side of a search region) in pixels of the network's input."""
        return exemplar_size(self.info.shape[-1]), self.info.shape[-1]

    @property
    def in_memory(self) -> bool:
        return all(item.pixels is not None for item in self.items)

    def to(self, device: torch.device | str) -> Sequences:
        items = [
            item if item.pixels is None else replace(item, pixels=item.pixels.to(device))
            for item in self.items
        ]
        return replace(self, items=tuple(items), device=device)

    def subset(self, indices: np.ndarray | torch.Tensor) -> Sequences:
        chosen = [int(i) for i in indices]
        return replace(self, items=tuple(self.items[i] for i in chosen), y=self.y[chosen])

    def batches(
        self,
        groups: List[torch.Tensor],
        augmentation: str = "none",
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """A batch ((exemplars, search regions), places) for every group of indices. The place of a
        target is (x, y) from the middle of the search region, as shares of the extent of the
        response. Without a generator the pairs are always the same, with the target in the
        middle."""
        import torch

        drawing = generator or torch.Generator().manual_seed(0)
        drawn = [self._draw(group.tolist(), drawing, generator is not None) for group in groups]
        for (exemplars, searches), (_, _, place) in zip(self._cut_all(drawn), drawn, strict=True):
            yield (exemplars, searches), torch.tensor(place, device=self.device)

    def _draw(
        self, group: list[int], generator: torch.Generator, jitter: bool
    ) -> tuple[list[Cut], list[Cut], list[list[float]]]:
        """(exemplars, search regions, places of the targets) of one pair of frames per sequence."""
        import torch

        small, large = self.sizes
        exemplars, searches, places = [], [], []
        for index, u in zip(group, torch.rand(len(group), 6, generator=generator), strict=True):
            item, draws = self.items[index], u.tolist()
            visible = item.visible
            first = visible[int(draws[0] * len(visible))]
            near = visible[np.abs(visible - first) <= MAX_GAP]
            second = near[int(draws[1] * len(near))]
            shift, stretch = (2 * u[2:4] - 1) * MAX_SHIFT * large, (2 * u[4:] - 1) * MAX_STRETCH
            if not jitter:
                shift, stretch = shift * 0, stretch * 0
            sides = context_side(item.boxes[[first, second], 2:]) * (1 + stretch.numpy())
            centres = item.boxes[[first, second], :2] + item.boxes[[first, second], 2:] / 2
            scale = sides[1] / small  # pixels of the frame per pixel of the region
            where = centres[1] + shift.numpy() * scale
            exemplars.append((index, int(first), *centres[0].tolist(), float(sides[0])))
            searches.append((index, int(second), *where.tolist(), float(scale * large)))
            places.append((-shift / (large - small)).tolist())
        return exemplars, searches, places

    def _cut_all(self, drawn: list[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        import torch
        from torch.utils.data import DataLoader

        small, large = self.sizes
        if self.in_memory:
            for exemplars, searches, _ in drawn:
                yield self.cut(exemplars, small), self.cut(searches, large)
            return
        pairs = [list(zip(e, s, strict=True)) for e, s, _ in drawn]
        loader: Any = DataLoader(
            _Pairs(replace(self, device="cpu")),  # type: ignore[arg-type]
            batch_sampler=pairs,
            num_workers=stream_workers(),
            generator=torch.Generator(),  # else the loader draws a seed from the global one
        )
        for exemplars, searches in loader:
            yield exemplars.to(self.device), searches.to(self.device)

    def cut(self, cuts: List[Cut], size: int) -> torch.Tensor:
        """The pixels of the squares, resized to size x size and normalised. What lies outside a
        frame has its mean colour."""
        import torch

        frames = [self.items[index].frame(frame) for index, frame, *_ in cuts]
        where = torch.tensor([cut[2:] for cut in cuts], dtype=torch.float32, device=self.device)
        if len({frame.shape for frame in frames}) == 1:
            return normalise(_resampled(torch.stack(frames), where, size), self.info)
        parts = [_resampled(frame[None], where[i : i + 1], size) for i, frame in enumerate(frames)]
        return normalise(torch.cat(parts), self.info)


class _Pairs:
    """The dataset of the DataLoader: its index is a pair of cuts, its item their pixels."""

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, pair: tuple[Cut, Cut]) -> tuple[torch.Tensor, torch.Tensor]:
        small, large = self.sequences.sizes
        return self.sequences.cut([pair[0]], small)[0], self.sequences.cut([pair[1]], large)[0]


def _resampled(frames: torch.Tensor, where: torch.Tensor, size: int) -> torch.Tensor:
    """The squares `where` (centre x, centre y, side) of frames of one size, resized to size x size,
    as values in [0, 1]."""
    import torch
    from torch.nn.functional import grid_sample

    x = frames.to(where.device, torch.float32) / 255
    mean = x.mean((2, 3), keepdim=True)
    steps = (torch.arange(size, device=where.device) - (size - 1) / 2) / size
    centres, sides = where[:, :2, None], where[:, 2:, None]
    # A box from 0 to w covers the pixels 0 to w - 1, whose middle is w / 2 - 1 / 2.
    places = centres - 0.5 + sides * steps
    limits = torch.tensor([x.shape[3] - 1, x.shape[2] - 1], device=where.device).view(1, 2, 1)
    across, down = (places * 2 / limits - 1).unbind(1)
    grid = torch.stack(
        [across[:, None, :].expand(-1, size, -1), down[:, :, None].expand(-1, -1, size)], -1
    )
    return grid_sample(x - mean, grid, align_corners=True) + mean


# --- files --------------------------------------------------------------------------------------


def _read(name: str, folder: str, data_dir: Path | None) -> Sequences:
    assert data_dir is not None
    info = DATASETS.get(name)
    where = data_dir / folder
    items = read_sequences(where) if where.is_dir() else []
    if not items:
        raise MissingDataError(
            f"dataset '{name}' not found: looked for folders with {TRUTH_FILES[0]} in {where}",
            f"get it with: {info.how_to_get(data_dir)}",
        )
    return Sequences.of(items, info)


def _find_test(folder: str, data_dir: Path) -> str | None:
    if any(next((data_dir / folder).glob(f"*/{name}"), None) for name in TRUTH_FILES):
        return None
    return f"no sequences in {data_dir / folder} (folders with {TRUTH_FILES[0]})"


def _info(name: str, train: str, test: str, size: int, **more: Any) -> DatasetInfo:
    return DatasetInfo(
        name=name,
        shape=(3, size, size),
        classes=1,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        read_train=partial(_read, name, train),
        read_test=partial(_read, name, test),
        folder=train,
        kind="object-tracking",
        find_test=partial(_find_test, test),
        **more,
    )


DATASETS.add(
    "got10k",
    _info(
        "got10k",
        "got10k/train",
        "otb",
        SEARCH_SIZE,
        train_size=9_335,
        test_size=100,
        source="Videos of moving things with one box per frame (Huang et al., 2019); tested on the "
        "sequences of OTB (Wu et al., 2015).",
        get_hint="unpack the train part of GOT-10k (got-10k.aitestunion.com) to DIR/got10k/train "
        "and the sequences of OTB to DIR/otb, a folder each",
    ),
)


def _parsed(name: str) -> tuple[str, int]:
    """(folder, size) of `sequences:NAME` or `sequences:NAME:127`."""
    folder, *numbers = name.split(":")[1:]
    if not folder or len(numbers) > 1 or not all(is_count(n) and int(n) >= 31 for n in numbers):
        raise UserError(
            f"dataset '{name}': write sequences:NAME, or sequences:NAME:SIZE with a search region "
            "of at least 31 pixels"
        )
    return folder, int(numbers[0]) if numbers else SEARCH_SIZE


@lru_cache(maxsize=64)
def _declared(name: str) -> DatasetInfo:
    folder, size = _parsed(name)
    return _info(
        name,
        f"{folder}/train",
        f"{folder}/test",
        size,
        train_size=0,
        test_size=0,
        source="Image sequences with one target each, a user's own.",
        get_hint=f"put one folder per sequence into DIR/{folder}/train and DIR/{folder}/test, its "
        f"frames and {TRUTH_FILES[0]} (x,y,w,h per line) in it",
    )


def _settle(name: str, _data_dir: Path | str | None) -> str:
    folder, size = _parsed(name)
    return f"sequences:{folder}:{size}"


DATASETS.families["sequences"] = Family(
    info=lambda name: _declared(_settle(name, None)), settle=_settle
)
