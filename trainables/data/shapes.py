"""Synthetic sequences for object tracking, without download: a coloured shape moves, changes its
size and is reflected at the edges, in front of a blurred background and of similar shapes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bitfront.trainables.data.datasets import DATASETS, DatasetInfo
from bitfront.trainables.data.sequence_files import Sequence
from bitfront.trainables.data.sequences import Sequences

if TYPE_CHECKING:
    import torch

FRAME_SIZE, FRAMES, OBJECTS = 80, 10, 3
# Random numbers per object: for its motion, and for its colours and form.
_MOTION, _LOOKS = 8, 8
# The seeds are part of the dataset: other seeds are another dataset.
_TRAIN_SEED, _TEST_SEED = 0, 1


def moving_shapes(
    count: int, seed: int, frames: int = FRAMES, size: int = FRAME_SIZE
) -> list[Sequence]:
    """`count` sequences, the same on every machine."""
    return [_sequence(f"shapes-{i:04d}", (seed, i), frames, size) for i in range(count)]


def _uniform(seed: tuple[int, ...], n: int) -> np.ndarray:
    """n uniform numbers in [0, 1), made from raw draws, which numpy guarantees not to change
    (NEP 19)."""
    return (np.random.PCG64(seed).random_raw(n) >> np.uint64(11)) * 2.0**-53


def _sequence(name: str, seed: tuple[int, ...], frames: int, size: int) -> Sequence:
    import torch

    draws = _uniform(seed, 3 * 6 * 6 + OBJECTS * (_MOTION + _LOOKS))
    coarse = torch.from_numpy(draws[: 3 * 6 * 6]).float().view(1, 3, 6, 6)
    ground = torch.nn.functional.interpolate(coarse, (size, size), mode="bilinear")
    picture = ground.repeat(frames, 1, 1, 1)
    objects = draws[3 * 6 * 6 :].reshape(OBJECTS, _MOTION + _LOOKS)
    boxes = np.zeros((frames, 4))
    # The target is drawn last, in front of the others.
    for number, drawn in enumerate(objects):
        boxes = _path(drawn[:_MOTION], frames, size)
        # The others have nearly the target's colours, and other forms.
        looks = (0.7 * objects[-1] + 0.3 * drawn)[_MOTION:]
        form = (int(4 * objects[-1][_MOTION]) + number + 1) % 4
        _draw(picture, boxes, looks, form)
    pixels = (picture * 255).round().to(torch.uint8)
    return Sequence(name, boxes, pixels)


def _path(drawn: np.ndarray, frames: int, size: int) -> np.ndarray:
    """The boxes of an object that moves in a straight line, by up to 5 pixels per frame and axis,
    and is reflected at the edges."""
    time = np.arange(frames)[:, None]
    start = size * (0.2 + 0.6 * drawn[:2])
    speed = 10 * drawn[2:4] - 5
    wide = 12 + 12 * drawn[4]
    ratio = 0.75 + 0.5 * drawn[5]
    growth = (0.98 + 0.04 * drawn[6]) ** time
    extent = np.array([wide, wide * ratio]) * growth
    room = size - extent
    corner = start + speed * time - extent / 2
    corner = room - np.abs(np.mod(corner, 2 * room) - room)
    return np.concatenate([corner, extent], 1)


def _draw(picture: torch.Tensor, boxes: np.ndarray, looks: np.ndarray, form: int) -> None:
    """Paint the object into every frame: its form in one colour, its middle in another."""
    import torch

    size = picture.shape[-1]
    pixel = torch.arange(size) + 0.5
    left, top, wide, high = torch.from_numpy(boxes).float().T[:, :, None]
    x = ((2 * (pixel - left) / wide - 1).abs())[:, None, :]
    y = ((2 * (pixel - top) / high - 1).abs())[:, :, None]
    inside = (x <= 1) & (y <= 1)
    masks = (
        x**2 + y**2 <= 1,
        inside,
        x + y <= 1,
        inside & ((x <= 0.4) | (y <= 0.4)),
    )
    outer, inner = torch.from_numpy(looks[1:7]).float().view(2, 1, 3, 1, 1)
    for mask, colour in ((masks[form], outer), (masks[form] & (x**2 + y**2 <= 0.2), inner)):
        picture.copy_(torch.where(mask[:, None], colour, picture))


def _read(count: int, seed: int, _data_dir: Path | None) -> Sequences:
    return Sequences.of(moving_shapes(count, seed), DATASETS.get("moving-shapes"))


DATASETS.add(
    "moving-shapes",
    DatasetInfo(
        name="moving-shapes",
        shape=(3, 63, 63),
        classes=1,
        train_size=240,
        test_size=60,
        mean=(0.5, 0.5, 0.5),
        std=(0.2, 0.2, 0.2),
        source="Sequences of a coloured shape that moves among others, drawn here.",
        get_hint="nothing to get: it is drawn when it is needed",
        read_train=partial(_read, 240, _TRAIN_SEED),
        read_test=partial(_read, 60, _TEST_SEED),
        embedded=True,
        kind="object-tracking",
    ),
)
