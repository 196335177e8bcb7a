"""Data that were handed over in Python, as arrays that every worker can read: Datasets, pairs of
arrays or DataLoaders, by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data.folders import IN_MEMORY_BYTES
from bitfront.trainables.data.own.look import varies
from bitfront.trainables.data.own.opened import PARTS, Goal, taken_apart
from bitfront.trainables.data.own.reading import Source, example, indexed, stacked
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    import torch

LOADER = "pass a function that returns them, which every worker calls: data=load"


@dataclass(frozen=True)
class HandedOver:
    """Examples and targets by part, and what is learned from them as far as it was said."""

    parts: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    goal: Goal


def handed_over(data: Any, called: str) -> HandedOver:
    """The data as arrays. A UserError, which calls them `called`, where they cannot be trained on,
    do not fit into memory, or differ each time they are read."""
    found = taken_apart(data, called, Goal())
    items = {
        part: indexed(found.parts[part], Source(called, part))
        for part in PARTS
        if part in found.parts
    }
    total = 0
    for part, those in items.items():
        source = Source(called, part)
        x0, _ = example(those, 0, source)
        total += len(those) * max(1, x0.numel()) * x0.element_size()
        if varies(those, source):
            raise source.refuse("examples differ each time they are read (augmentation)", LOADER)
    if total > IN_MEMORY_BYTES:
        raise UserError(f"{called}: {total / 1e9:.1f} GB of examples", LOADER)
    parts = {part: stacked(those, Source(called, part)) for part, those in items.items()}
    return HandedOver(parts, found.goal)
