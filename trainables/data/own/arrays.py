"""Data that were handed over in Python, written to a file of arrays that workers can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bitfront.trainables.data.own.array_files import write_file
from bitfront.trainables.data.own.look import is_too_large, varies
from bitfront.trainables.data.own.opened import TRAIN, taken_apart
from bitfront.trainables.data.own.reading import Source, indexed, stacked
from bitfront.trainables.errors import UserError

# What messages call the data.
DATA = "data"
_BY_FUNCTION = "hand over a function that returns them: data=load"


def write_arrays(data: Any, folder: Path | str) -> str:
    """Write what a function of the user's own would return (Datasets, arrays, DataLoaders, with or
    without validation and test part) to a file in `folder`; returns the name of the dataset, with
    the hash of its content, not settled yet."""
    found = taken_apart(data, DATA)
    if found.goal.loss is not None or found.goal.metrics or found.goal.kind is not None:
        raise UserError("data with a metric, a loss or a kind of their own", _BY_FUNCTION)
    items = {part: indexed(given, Source(DATA, part)) for part, given in found.parts.items()}
    if varies(items[TRAIN], Source(DATA, TRAIN)):
        raise UserError("data: examples differ each time they are read", _BY_FUNCTION)
    if is_too_large(items, Source(DATA, TRAIN)):
        raise UserError("data: too large to be kept in memory", _BY_FUNCTION)
    return write_file({p: stacked(those, Source(DATA, p)) for p, those in items.items()}, folder)
