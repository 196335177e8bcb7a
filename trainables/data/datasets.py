"""The declaration of a dataset, its parts in memory, and the split into training and validation
part. The family modules read the files; batches are made in `batches`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from bitfront.trainables.data.augmentations import AUGMENTATIONS
from bitfront.trainables.errors import UserError
from bitfront.trainables.registry import Registry
from bitfront.trainables.text_files import whole_path

if TYPE_CHECKING:
    import torch

# (data directory) -> one part of a dataset as it is stored: (x, y) with uint8 pixels or float
# values in [0, 1] (or in the range of `mean` and `std`) and int64 labels; or a `Part` that is not
# held in one array.
Read = Callable[[Path | None], Any]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Numbers of random streams: the uses of one seed must not draw the same numbers.
_SPLIT, _TAKE, _ORDER = 0, 1, 3


def _complete(_data_dir: Path) -> str | None:
    """None, for nothing is missing: the check of datasets whose parts are not separate files."""
    return None


@dataclass(frozen=True)
class DatasetInfo:
    """The declaration of a data set; nothing is read or imported until it is loaded."""

    name: str
    shape: tuple[int, ...]
    classes: int
    train_size: int
    test_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str
    get_hint: str
    read_train: Read
    read_test: Read
    embedded: bool = False
    augmentation: str = "none"
    folder: str | None = None
    kind: str = "classification"
    # The number of tasks that continual learning makes from its examples.
    tasks: int = 1
    # (data directory) -> what is missing of the test part, judged by file names; None: nothing.
    find_test: Callable[[Path], str | None] = _complete
    # (data directory) -> number of training examples, for datasets without `train_size`.
    count_train: Callable[[Path], int] | None = None

    def is_there(self, data_dir: Path | str | None) -> bool:
        """Whether the dataset is in `data_dir`, judged by its folder alone."""
        if self.embedded or data_dir is None or self.folder is None:
            return self.embedded
        return (whole_path(data_dir) / self.folder).is_dir()

    def how_to_get(self, data_dir: Path | None = None) -> str:
        """`get_hint` with the user's own directory in place of DIR, ready to paste."""
        return self.get_hint if data_dir is None else self.get_hint.replace("DIR", str(data_dir))


@dataclass(frozen=True)
class Family:
    """Datasets named `FAMILY:...`, for example a user's own. The name contains the declaration, so
    that costs are known and checkpoints load on machines without the data."""

    info: Callable[[str], DatasetInfo]
    # (name, data directory) -> the name completed by what is looked up in the data directory.
    settle: Callable[[str, Path | str | None], str]


class Datasets(Registry[DatasetInfo]):
    """The registered datasets, and those of the families."""

    def __init__(self) -> None:
        super().__init__("dataset", package=__package__)
        self.families: dict[str, Family] = {}

    def get(self, name: str) -> DatasetInfo:
        family = self._family(name)
        return super().get(name) if family is None else family.info(name)

    def _family(self, name: str) -> Family | None:
        self.find()
        return self.families.get(name.partition(":")[0]) if ":" in name else None

    def settle(self, name: str, data_dir: Path | str | None) -> str:
        """The name as a search stores it: complete, so that it means the same on other machines."""
        family = self._family(name)
        return name if family is None else family.settle(name, data_dir)


DATASETS = Datasets()


class Part:
    """One part of a dataset."""

    y: torch.Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device | str) -> Self:
        raise NotImplementedError

    def laid_out(self, layout: torch.memory_format) -> Self:
        """The part with its images in this memory format, so that no batch has to be converted."""
        return self

    def subset(self, indices: np.ndarray | torch.Tensor) -> Self:
        raise NotImplementedError

    def first(self, count: int) -> Self:
        """At most `count` examples, the ones at the beginning."""
        return self if len(self) <= count else self.subset(np.arange(count))

    def batches(
        self,
        groups: Sequence[torch.Tensor],
        augmentation: str = "none",
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[Any, torch.Tensor]]:
        """A batch (x, y) for every group of indices. Augmentation draws from the generator; without
        a generator nothing is augmented."""
        raise NotImplementedError

    def take(self, n: int, seed: int) -> Self:
        """n examples drawn with the same proportions of classes, for searches on part of the
        data."""
        if not 0 < n <= len(self):
            raise UserError(f"cannot take {n} examples of {len(self)}")
        if n == len(self):
            return self
        return self.subset(stratified(_strata(self.y), n, (seed, _TAKE)))


@dataclass(frozen=True, eq=False)
class Arrays(Part):
    """A part whose examples and labels are in memory, on one device."""

    x: torch.Tensor
    y: torch.Tensor

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: torch.device | str) -> Arrays:
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def subset(self, indices: np.ndarray | torch.Tensor) -> Arrays:
        import torch

        index = torch.as_tensor(indices, dtype=torch.int64, device=self.device)
        x, y = self.x.index_select(0, index), self.y.index_select(0, index)
        return replace(self, x=x, y=y)

    def first(self, count: int) -> Arrays:
        return replace(self, x=self.x[:count], y=self.y[:count])  # views, nothing is copied

    def laid_out(self, layout: torch.memory_format) -> Arrays:
        import torch

        if self.x.dim() != 4 or layout is torch.preserve_format:
            return self
        return replace(self, x=self.x.contiguous(memory_format=layout))

    def batches(
        self,
        groups: Sequence[torch.Tensor],
        augmentation: str = "none",
        generator: torch.Generator | None = None,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        augment = AUGMENTATIONS.get(augmentation)
        for group in groups:
            index = group.to(self.device)
            x = self.x.index_select(0, index)
            yield (x if generator is None else augment(x, generator)), self.y.index_select(0, index)


@dataclass(frozen=True, eq=False)
class TaskRow(Arrays):
    """The tasks of continual learning: each has the same examples, with its own fixed permutation
    of the pixels. `seen` of them have begun."""

    tasks: int = 1
    seen: int = 1

    def up_to(self, task: int) -> TaskRow:
        """The tasks 0 to `task`, which are evaluated while `task` is learned."""
        return replace(self, seen=task + 1)

    def of_task(self, task: int) -> Arrays:
        import torch

        flat = self.x.flatten(1)
        # The seed of a task's permutation is part of the dataset.
        order = np.argsort(np.random.PCG64((task, _ORDER)).random_raw(flat.shape[1]), kind="stable")
        index = torch.as_tensor(order, device=self.device)
        return Arrays(flat.index_select(1, index).view(self.x.shape), self.y)


def _strata(y: torch.Tensor) -> np.ndarray:
    """The classes that a stratified draw keeps in proportion: the labels, or one class for targets
    of regression."""
    labels = y.cpu().numpy()
    return np.zeros(len(labels), dtype=int) if y.is_floating_point() else labels


def stratified(labels: np.ndarray, n: int, seed: tuple[int, ...]) -> np.ndarray:
    """Sorted indices of n examples drawn at random, with the proportions of the classes kept to
    within one example."""
    # The order is that of raw draws: of numpy's random API only the raw stream of a bit generator
    # is guaranteed to be the same in all versions and on all machines (NEP 19).
    order = np.argsort(np.random.PCG64(seed).random_raw(len(labels)), kind="stable")
    classes, sizes = np.unique(labels, return_counts=True)
    quota, remainder = np.divmod(sizes * n, len(labels))
    quota[np.argsort(-remainder, kind="stable")[: n - int(quota.sum())]] += 1
    shuffled = labels[order]
    chosen = [order[shuffled == c][:k] for c, k in zip(classes, quota, strict=True)]
    return np.sort(np.concatenate(chosen))


P = TypeVar("P", bound=Part)


def split(arrays: P, val_fraction: float, seed: int) -> tuple[P, P]:
    """(training part, validation part): a stratified partition of the examples, the same on every
    machine."""
    n = round(len(arrays) * val_fraction)
    if not 0 < n < len(arrays):
        raise UserError(
            f"val_fraction {val_fraction} of {len(arrays)} examples leaves an empty part",
            "a fraction strictly between 0 and 1, for example 0.1",
        )
    is_val = np.zeros(len(arrays), dtype=bool)
    is_val[stratified(_strata(arrays.y), n, (seed, _SPLIT))] = True
    return arrays.subset(np.flatnonzero(~is_val)), arrays.subset(np.flatnonzero(is_val))


def load_train(name: str, data_dir: Path | str | None = None, normalize: str = "dataset") -> Any:
    """Training and validation examples together, normalised, on the CPU. Reads no test file."""
    return _load(name, "train", data_dir, normalize)


def load_test(name: str, data_dir: Path | str | None = None, normalize: str = "dataset") -> Any:
    """The test examples, normalised, on the CPU. For final training only."""
    return _load(name, "test", data_dir, normalize)


def missing_test(name: str, data_dir: Path | str | None = None) -> str | None:
    """What is missing of the test part, which only final training needs; None: nothing, or the
    whole dataset."""
    info = DATASETS.get(name)
    where = _known_dir(data_dir)
    if info.embedded or where is None or not info.is_there(where):
        return None
    return info.find_test(where)


def train_examples(name: str, data_dir: Path | str | None = None) -> int | None:
    """How many training examples a dataset has, validation included; None: unknown without its
    files."""
    info = DATASETS.get(name)
    if info.count_train is None:
        return info.train_size or None
    where = _known_dir(data_dir)
    return info.count_train(where) if where is not None and info.is_there(where) else None


def _known_dir(data_dir: Path | str | None) -> Path | None:
    chosen = data_dir or os.environ.get("BITFRONT_DATA")
    return Path(chosen).expanduser().resolve() if chosen else None


def resolve_data_dir(name: str, how_to_get: str, data_dir: Path | str | None = None) -> Path:
    """The directory of the datasets: the argument, else BITFRONT_DATA, else a UserError."""
    chosen = data_dir or os.environ.get("BITFRONT_DATA")
    if not chosen:
        raise UserError(
            f"dataset '{name}' is read from a data directory and none is given",
            f"pass --data-dir DIR or set BITFRONT_DATA; to get the data: {how_to_get}",
        )
    return whole_path(chosen)


def pixel_statistics(
    info: DatasetInfo, normalize: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel that pixels are normalised with."""
    if normalize == "dataset":
        return info.mean, info.std
    if len(info.shape) != 3 or info.shape[0] != 3:
        raise UserError(f"normalize: imagenet is for colour images, {info.name} has none")
    return IMAGENET_MEAN, IMAGENET_STD


def _load(
    name: str, part: Literal["train", "test"], data_dir: Path | str | None, normalize: str
) -> Any:
    info = DATASETS.get(name)
    mean, std = pixel_statistics(info, normalize)
    info = replace(info, mean=mean, std=std)
    where = None if info.embedded else resolve_data_dir(info.name, info.how_to_get(), data_dir)
    stored = _read(info.name, part, where)
    if isinstance(stored, tuple):
        x, y = stored
        x, y = normalise(x, info), y.clone()
        return Arrays(x, y) if info.tasks == 1 else TaskRow(x, y, info.tasks, info.tasks)
    # A part that is not held in one array normalises when it reads, by its own `info`.
    return replace(stored, info=info)


# A function that returns training examples (x, y) which another process has read from disk.
Fetch = Callable[[], tuple[np.ndarray, np.ndarray]]
_lent: dict[str, Fetch] = {}


def lend(name: str, fetch: Fetch) -> None:
    """Make `fetch` the source of a dataset's training examples in their stored form. The arrays may
    be memory shared with other processes: they are only read, and normalising copies them."""
    _lent[name] = fetch


def stored_arrays(
    name: str, data_dir: Path | str | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """The training examples as they are stored, if they are arrays; None otherwise."""
    info = DATASETS.get(name)
    where = None if info.embedded else resolve_data_dir(info.name, info.how_to_get(), data_dir)
    stored = _read(info.name, "train", where)
    return (stored[0].numpy(), stored[1].numpy()) if isinstance(stored, tuple) else None


def _borrowed(fetch: Fetch) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    with warnings.catch_warnings():
        # The arrays are read-only on purpose.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        x, y = fetch()
        return torch.from_numpy(x), torch.from_numpy(y)


# Cached for a Ray actor, which runs many trials; in the stored form, since uint8 takes a quarter of
# the memory of float32.
@lru_cache(maxsize=4)
def _read(name: str, part: Literal["train", "test"], data_dir: Path | None) -> Any:
    if part == "train" and name in _lent:
        return _borrowed(_lent[name])
    info = DATASETS.get(name)
    return info.read_train(data_dir) if part == "train" else info.read_test(data_dir)


def normalise(x: torch.Tensor, info: DatasetInfo) -> torch.Tensor:
    """Images with the mean and the standard deviation of their dataset taken out."""
    import torch

    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    per_channel = (1, -1) + (1,) * (x.ndim - 2)
    mean = torch.tensor(info.mean, device=x.device).mul_(scale).view(per_channel)
    std = torch.tensor(info.std, device=x.device).mul_(scale).view(per_channel)
    # A copy, since the stored tensor is cached.
    return x.to(torch.float32, copy=True).sub_(mean).div_(std)
