"""Reads image sequences from folders: frames, and the box of the target in each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    import torch


TRUTH_FILES = ("groundtruth.txt", "groundtruth_rect.txt")


FRAME_FOLDERS = ("img", "imgs", "color", ".")


FRAME_TYPES = {".jpg", ".jpeg", ".png", ".bmp"}


@dataclass(frozen=True, eq=False)
class Sequence:
    """Frames and the target's box in each: (left, top, width, height) in pixels counted from 0. A
    frame without the target has a box of zeros. Frames are in memory (`pixels`) or in a folder."""

    name: str
    boxes: np.ndarray
    pixels: torch.Tensor | None = None
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def visible(self) -> np.ndarray:
        """The indices of the frames that show the target."""
        return np.flatnonzero(valid(self.boxes))

    def frame(self, index: int) -> torch.Tensor:
        """The pixels of a frame: uint8, channels first."""
        if self.pixels is not None:
            return self.pixels[index]
        assert self.folder is not None
        return _pixels_of(frame_files(self.folder)[index])


def valid(boxes: np.ndarray) -> np.ndarray:
    """Which boxes are finite and have an area."""
    kept: np.ndarray = np.isfinite(boxes).all(1) & (boxes[:, 2] > 0) & (boxes[:, 3] > 0)
    return kept


@lru_cache(maxsize=4096)
def frame_files(folder: Path) -> tuple[Path, ...]:
    """The images of a sequence in order, in the folder itself or one below."""
    for name in FRAME_FOLDERS:
        below = folder / name
        if below.is_dir():
            found = sorted(f for f in below.iterdir() if f.suffix.lower() in FRAME_TYPES)
            if found:
                return tuple(found)
    return ()


def _pixels_of(file: Path) -> torch.Tensor:
    import torch
    from PIL import Image

    try:
        with Image.open(file) as image:
            return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: not an image, or damaged ({error})") from None


def read_boxes(file: Path) -> np.ndarray:
    """The boxes (left, top, width, height) of a text file with one line per frame: x y w h in
    pixels counted from 1, or the corners of a polygon, separated by commas, tabs or spaces."""
    rows = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words:
            continue
        try:
            values = [float(word) for word in words]
        except ValueError:
            raise UserError(f"{file}:{number}: not numbers: {line.strip()[:60]}") from None
        if len(values) == 4:
            rows.append([values[0] - 1, values[1] - 1, values[2], values[3]])
        elif len(values) >= 8 and len(values) % 2 == 0:
            rows.append(box_of_polygon(np.array(values).reshape(-1, 2)))
        else:
            raise UserError(f"{file}:{number}: {len(values)} numbers, a box has 4, a polygon 8")
    boxes = np.array(rows, dtype=np.float64).reshape(-1, 4)
    boxes[~valid(boxes)] = 0.0
    return boxes


def box_of_polygon(corners: np.ndarray) -> list[float]:
    """The upright box with the middle of the corners, the proportions of their bounding box and
    the area of the polygon."""
    if not np.isfinite(corners).all():
        return [0.0] * 4
    x, y = corners.T
    area = abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
    low, high = corners.min(0), corners.max(0)
    bounding = float(np.prod(high - low))
    if bounding <= 0:
        return [0.0] * 4
    size = (high - low) * math.sqrt(area / bounding)
    return [*(corners.mean(0) - size / 2).tolist(), *size.tolist()]


def read_sequence(folder: Path) -> Sequence:
    """The sequence in one folder: frames, boxes and, in GOT-10k, the frames without the target."""
    truth = next(folder / name for name in TRUTH_FILES if (folder / name).is_file())
    boxes = read_boxes(truth)
    frames = len(frame_files(folder))
    if not frames or not len(boxes):
        raise UserError(f"{folder}: a sequence needs frames and boxes, it has {frames} frames")
    boxes = boxes[:frames]
    absence = folder / "absence.label"
    if absence.is_file():
        absent = np.array(absence.read_text().split(), dtype=float)[: len(boxes)] > 0
        boxes[: len(absent)][absent] = 0.0
    if not valid(boxes[:1]).all():
        raise UserError(f"{truth}: the first frame has no box to start from")
    return Sequence(folder.name, boxes, folder=folder)


def read_sequences(folder: Path) -> list[Sequence]:
    """The sequences of all folders in `folder` that have a file of boxes, sorted by name."""
    found = sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and any((entry / name).is_file() for name in TRUTH_FILES)
    )
    return [read_sequence(entry) for entry in found]
