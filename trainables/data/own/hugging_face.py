"""`hf:PATH`: a dataset of the library `datasets`, stored on disk with its `save_to_disk`. Nothing
is downloaded. `hf:PATH:IMAGE_COLUMN:LABEL_COLUMN` names the columns, a number at the end the side
that images are resized to."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitfront.trainables.errors import UserError, did_you_mean, first_line
from bitfront.trainables.registry import is_count
from bitfront.trainables.text_files import whole_path

FAMILY = "hf"
_PARTS = ("train", "val", "valid", "validation", "test")
_INPUTS = ("image", "img", "x", "pixel_values", "features")
_TARGETS = ("label", "labels", "fine_label", "y", "target")
FORM = "write hf:PATH, hf:PATH:IMAGE_COLUMN:LABEL_COLUMN, and :SIZE at the end to resize images"


def parsed(name: str) -> tuple[str, str | None, str | None, int | None]:
    """(path, column of inputs, column of targets, side of images) of the name."""
    path, *rest = name.split(":")[1:]
    size = int(rest.pop()) if rest and is_count(rest[-1]) else None
    if not path or len(rest) not in (0, 2) or size == 0:
        raise UserError(f"dataset '{name}': {FORM}")
    given = (rest[0], rest[1]) if rest else (None, None)
    return path, *given, size


class Columns:
    """Two columns of a stored dataset as examples (x, y)."""

    def __init__(self, rows: Any, columns: tuple[str, str], size: int | None) -> None:
        self.rows, self.columns, self.size = rows, columns, size

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        row = self.rows[int(index)]
        x, y = (row[column] for column in self.columns)
        return (self._pixels(x) if hasattr(x, "convert") else x), y

    def _pixels(self, image: Any) -> Any:
        """An image as uint8 pixels, channels first; resized from the square in its middle."""
        image = image.convert("L" if image.mode in ("1", "L", "I", "F") else "RGB")
        if self.size is not None:
            side = min(image.size)
            left, top = ((extent - side) // 2 for extent in image.size)
            box = (left, top, left + side, top + side)
            image = image.resize((self.size, self.size), box=box)
        pixels = np.array(image)
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def read_parts(name: str) -> dict[str, Columns]:
    """The parts of the stored dataset, by name."""
    path, of_inputs, of_targets, size = parsed(name)
    folder = whole_path(path)
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"dataset '{name}' is read by the library datasets, which is not installed",
            "pip install datasets",
        ) from None
    try:
        stored = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: no dataset that save_to_disk has written ({first_line(error)})", FORM
        ) from None
    parts = dict(stored) if isinstance(stored, dict) else {"train": stored}
    parts = {part: rows for part, rows in parts.items() if part in _PARTS}
    made = {}
    for part, rows in parts.items():
        names = rows.column_names
        columns = _column(of_inputs, _INPUTS, names), _column(of_targets, _TARGETS, names)
        made[part] = Columns(rows, columns, size)
    return made


def _column(given: str | None, usual: tuple[str, ...], names: list[str]) -> str:
    if given is not None and given not in names:
        raise UserError(f"there is no column '{given}', {did_you_mean(given, names)}")
    found = given or next((name for name in usual if name in names), None)
    if found is None:
        raise UserError(f"the columns are {', '.join(names)}: which are meant?", FORM)
    return found
