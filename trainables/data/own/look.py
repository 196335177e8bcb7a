"""The look at data of the user's own: read and checked once, when a search is settled. It gives the
settled name, and what is printed before the first trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data.datasets import DatasetInfo
from bitfront.trainables.data.folders import IN_MEMORY_BYTES
from bitfront.trainables.data.own import target as targets
from bitfront.trainables.data.own.declaration import (
    Declared,
    arguments_of,
    base_of,
    is_settled,
    read,
    with_arguments,
    write,
)
from bitfront.trainables.data.own.examples import Examples, seeded
from bitfront.trainables.data.own.opened import PARTS, TEST, TRAIN, VAL, opened
from bitfront.trainables.data.own.reading import (
    Rows,
    Source,
    are_integers,
    check_numbers,
    check_same,
    check_shape,
    example,
    examples,
    indexed,
    stacked,
)
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import shown

if TYPE_CHECKING:
    from pathlib import Path

    import torch

# Examples that are looked at where not all are read, and that statistics are taken from.
LOOKED_AT, MEASURED = 64, 4096


@dataclass(frozen=True)
class Look:
    """What data of the user's own look like."""

    name: str
    declared: Declared
    low: float
    high: float
    counts: tuple[int, ...] = ()
    """training examples of every class"""
    notes: tuple[str, ...] = ()
    """what is probably not meant"""


def key_of(name: str) -> str:
    """What the data are opened by: the name without what was found out about them."""
    return with_arguments(base_of(name), arguments_of(name))


@lru_cache(maxsize=8)
def look(key: str) -> Look:
    """Read and check the data of this name, which carries no declaration yet."""
    import torch

    found = opened(key)
    items = {part: _indexed(key, part) for part in found.parts}
    x0, _ = example(items[TRAIN], 0, Source(key, TRAIN))
    check_shape(x0, Source(key, TRAIN))
    random = varies(items[TRAIN], Source(key, TRAIN))
    each = random or is_too_large(items, Source(key, TRAIN))
    xs: dict[str, torch.Tensor] = {}
    ys: dict[str, torch.Tensor] = {}
    for part, those in items.items():
        if each:
            xs[part], ys[part] = _looked_through(those, x0, Source(key, part))
        else:
            xs[part], ys[part] = _stacked(key, part)
        check_same(xs[part][0], x0, 0, "x", Source(key, part))
    target, outputs = targets.decide(found.goal, ys, key)
    seen, y = xs[TRAIN], ys[TRAIN]
    metrics, loss = targets.at_chance(found.goal, y, target, outputs, key)
    pixels = seen.dtype == torch.uint8 and seen.dim() == 4
    integers = all(map(are_integers, xs.values()))
    mean, std = _statistics(seen) if pixels else ((), ())
    sizes = tuple(len(items[part]) if part in items else 0 for part in PARTS)
    declared = Declared(
        shape=tuple(x0.shape),
        outputs=outputs,
        target=target,
        sizes=sizes,  # type: ignore[arg-type]
        metrics=metrics,
        own_loss=found.goal.loss is not None,
        loss_chance=loss,
        spread=targets.spread_of(y) if target == "regression" else 1.0,
        mean=mean,
        std=std,
        integers=integers,
        each=each,
        random=random,
        arguments=arguments_of(key),
    )
    some = seen[:MEASURED]
    counts = torch.bincount(y, minlength=outputs).tolist() if target == "classes" else ()
    found_out = Look(
        name=write(base_of(key), declared),
        declared=declared,
        low=float(some.min()),
        high=float(some.max()),
        counts=tuple(counts),
        notes=tuple(_notes(declared, y, key)),
    )
    _looks[found_out.name] = found_out
    return found_out


_looks: dict[str, Look] = {}


def looked_at(name: str) -> Look | None:
    """The look at the data of a settled name, where it was taken in this process."""
    return _looks.get(name)


def _notes(declared: Declared, y: torch.Tensor, key: str) -> list[str]:
    found = targets.remarks(y, declared.target, key, declared.outputs)
    shape = declared.shape
    if len(shape) == 2 and min(shape) >= 8:
        extents = "x".join(map(str, shape))
        found.append(
            f"{shown(key)}: examples of {extents} have no axis of channels; if they are images, "
            f"make them 1x{extents}: x.unsqueeze(0)"
        )
    if declared.random and declared.sizes is not None and not declared.sizes[1]:
        found.append(
            f"{shown(key)}: examples differ each time they are read, those that are split off for "
            "validation too: return (train, val, test), with no random transform in val and test"
        )
    return found


def is_too_large(items: Mapping[str, Any], source: Source) -> bool:
    """Whether the examples of all parts are too many to be kept in memory."""
    x0, _ = example(items[TRAIN], 0, source)
    return sum(map(len, items.values())) * x0.numel() * 4 > IN_MEMORY_BYTES


def varies(items: Any, source: Source) -> bool:
    """Whether the same example differs when it is read again, as augmented ones do."""
    if isinstance(items, Rows | list):
        return False
    for index in range(min(4, len(items))):
        reads = []
        for seed in range(3):
            with seeded(seed):
                reads.append(example(items, index, source)[0])
        if any(bool(x.isnan().any()) for x in reads):
            return False  # which equals nothing, and is refused later
        if any(x.shape == reads[0].shape and not x.equal(reads[0]) for x in reads[1:]):
            return True
    return False


def _looked_through(
    items: Any, x0: torch.Tensor, source: Source
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the first examples, all targets) of a part that is read for every batch. All of it is read
    where the dataset does not say its labels."""
    import torch

    known = labels_of(items, source)
    xs: list[torch.Tensor] = []
    ys: list[torch.Tensor] = []
    for index, (x, y) in enumerate(examples(items, source)):
        check_same(x, x0, index, "x", source)
        if index < LOOKED_AT:
            check_numbers(x[None], "x", source)
            xs.append(x)
        elif known is not None:
            break
        if ys:
            check_same(y, ys[0], index, "y", source)
        ys.append(y)
    found = torch.stack(ys) if known is None else known
    check_numbers(found, "y", source)
    return torch.stack(xs), found


def labels_of(items: Any, source: Source) -> torch.Tensor | None:
    """The labels of a dataset that has them in an attribute, as those of torchvision do; None
    where there is none, or it is not what its examples say."""
    import torch
    from torch.utils.data import Subset

    if isinstance(items, Subset):
        of_all = labels_of(items.dataset, source)
        return None if of_all is None else of_all[torch.as_tensor(items.indices)]
    for name in ("targets", "labels", "y"):
        found = getattr(items, name, None)
        try:
            labels = None if found is None else torch.as_tensor(found)
        except (TypeError, ValueError, RuntimeError):
            continue
        if labels is None or labels.dim() != 1 or labels.is_floating_point():
            continue
        if len(labels) == len(items) and all(
            int(labels[i]) == int(example(items, i, source)[1].flatten()[0])
            for i in range(0, len(items), max(1, len(items) // 8))
        ):
            return labels.to(torch.int64)
    return None


def _statistics(x: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the channels of uint8 images, as fractions of 255."""
    some = x[:: max(1, len(x) // MEASURED)].float() / 255
    std, mean = some.std((0, 2, 3)), some.mean((0, 2, 3))
    return (
        tuple(round(m, 4) for m in mean.tolist()),
        tuple(round(s, 4) if s >= 1e-4 else 1.0 for s in std.tolist()),
    )


@lru_cache(maxsize=3)
def _indexed(key: str, part: str) -> Any:
    return indexed(opened(key).parts[part], Source(key, part))


# The tensors are those that `datasets` keeps: nothing is held twice.
@lru_cache(maxsize=3)
def _stacked(key: str, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    return stacked(_indexed(key, part), Source(key, part))


# --- by settled name --------------------------------------------------------------------------


def read_part(name: str, part: str, _data_dir: Path | None) -> Any:
    """A part of the data of a settled name: (x, y) in memory, or `Examples`."""
    import torch

    declared, key = read(name), key_of(name)
    if part not in opened(key).parts:
        raise UserError(f"{shown(name)} has no part '{part}'", "return (train, val, test)")
    items = _indexed(key, part)
    expected = None if declared.sizes is None else declared.sizes[PARTS.index(part)]
    x0, _ = example(items, 0, Source(key, part))
    if tuple(x0.shape) != declared.shape or expected not in (None, len(items)):
        now = f"{len(items)} examples of {'x'.join(map(str, x0.shape))}"
        was = f"{expected} of {'x'.join(map(str, declared.shape))}"
        raise UserError(
            f"{shown(name)}, part {part}: {now}, but {was} when the search was settled",
            "bring the old data back, or start a new search with the new ones (--name)",
        )
    if not declared.each:
        x, y = _stacked(key, part)
        return x, y.float() if declared.target == "regression" else y
    labels = labels_of(items, Source(key, part)) if declared.target == "classes" else None
    y = torch.zeros(len(items), dtype=torch.int64) if labels is None else labels
    index = torch.arange(len(items)).numpy()
    return Examples(items, index, y, info_of(name), Source(key, part))


@lru_cache(maxsize=64)
def info_of(name: str) -> DatasetInfo:
    """The declaration of data with a settled name. Runs no code and reads no data."""
    if not is_settled(name):
        raise UserError(
            f"dataset '{shown(name)}' has not been looked at",
            "data of your own are named in a search YAML, or looked at with: bitfront datasets "
            f"{shown(name)}",
        )
    declared = read(name)
    channels = declared.shape[0] if len(declared.shape) == 3 else 1
    train, val, test = declared.sizes or (0, 0, 0)
    return DatasetInfo(
        name=name,
        shape=declared.shape,
        classes=declared.outputs,
        train_size=train + val,
        test_size=test,
        mean=declared.mean or (0.0,) * channels,
        std=declared.std or (1.0,) * channels,
        source=f"Data of your own: {shown(base_of(name))}.",
        get_hint="they are where their code reads them from",
        read_train=partial(read_part, name, TRAIN),
        read_val=partial(read_part, name, VAL) if val else None,
        read_test=partial(read_part, name, TEST),
        embedded=True,
        kind=declared.kind,
        find_test=partial(_missing_test, name),
        own=declared,
        integers=declared.integers,
    )


def _missing_test(name: str, _data_dir: Any) -> str | None:
    sizes = read(name).sizes
    if sizes is None or sizes[2]:
        return None
    return f"{shown(base_of(name))} returns none"


def forget() -> None:
    """Forget all data that were opened: for tests, and for a notebook whose data changed."""
    caches: Mapping[str, Any] = {"look": look, "indexed": _indexed, "stacked": _stacked}
    for cached in (*caches.values(), opened, info_of):
        cached.cache_clear()
