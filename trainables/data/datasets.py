"""The declaration of a dataset, and how its parts are loaded. The family modules read the files;
what a part is is in `parts`, batches are made in `batches`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bitfront.trainables.data.own.declaration import Declared, base_of, is_settled
from bitfront.trainables.data.parts import Arrays, TaskRow
from bitfront.trainables.errors import MissingDataError, UserError
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.own_code.entry_points import reference_of
from bitfront.trainables.registry import Registry
from bitfront.trainables.text_files import whole_path

if TYPE_CHECKING:
    import torch

# (data directory) -> one part of a dataset as it is stored: (x, y) with uint8 pixels or float
# values in [0, 1] (or in the range of `mean` and `std`) and int64 labels; or a `Part` that is not
# held in one array.
Read = Callable[[Path | None], Any]
PartName = Literal["train", "val", "test"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _complete(_data_dir: Path) -> str | None:
    """None, for nothing is missing: the check of datasets whose parts are not separate files."""
    return None


def _no_names(_data_dir: Path) -> Sequence[str]:
    """The names of classes that have none but their numbers."""
    return ()


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
    # A validation part of its own; without one, it is split off the training part.
    read_val: Read | None = None
    # What the name of data of the user's own declares.
    own: Declared | None = None
    # Whether examples are integers, such as token numbers, and reach the network as they are.
    integers: bool = False
    # (data directory) -> the names of the classes in the order of labels; empty: not known.
    name_classes: Callable[[Path], Sequence[str]] = _no_names

    def is_there(self, data_dir: Path | str | None) -> bool:
        """Whether the dataset is in `data_dir`, judged by its folder alone."""
        if self.has_path:
            return Path(str(self.folder)).is_dir()
        if self.embedded or data_dir is None or self.folder is None:
            return self.embedded
        return (whole_path(data_dir) / self.folder).is_dir()

    @property
    def has_axes(self) -> bool:
        """Whether targets are such that outputs of networks may have further axes, as class maps
        have: those of data of the user's own with a loss of their own."""
        return self.own is not None and self.own.target == "own"

    @property
    def has_path(self) -> bool:
        """Whether its folder is a whole path, so that no data directory is needed."""
        return self.folder is not None and self.folder.startswith("/")

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
    # Whether nothing is known about its data until they have been looked at.
    looked_at: bool = False


class Datasets(Registry[DatasetInfo]):
    """The registered datasets, and those of the families."""

    def __init__(self) -> None:
        super().__init__("dataset", package=__package__)
        self.families: dict[str, Family] = {}
        # Data that a function of the user's own returns, by reference.
        self.references: Family | None = None

    def get(self, name: str) -> DatasetInfo:
        family, name = self._family(name), self.named(name)
        return super().get(name) if family is None else family.info(name)

    def reference(self, name: str) -> str | None:
        """The reference that an installed package declares under this name, which may carry
        arguments; None for all others."""
        base = base_of(name)
        if ":" in base or base in self.find() or base in self._aliases:
            return None
        return reference_of(self.kind, base)

    def named(self, name: str) -> str:
        """The name itself, or with the reference that a package declares in its place."""
        reference = self.reference(name)
        return name if reference is None else reference + name.removeprefix(base_of(name))

    def _family(self, name: str) -> Family | None:
        self.find()
        name = self.named(name)
        if ":" not in name:
            return None
        family = self.families.get(name.partition(":")[0])
        return self.references if family is None and is_reference(base_of(name)) else family

    def is_unseen(self, name: str) -> bool:
        """Whether nothing is known about the data until the name is settled."""
        family = self._family(name)
        return family is not None and family.looked_at and not is_settled(name)

    def runs_code(self, name: str) -> bool:
        """Whether settling the name runs code of the user's own."""
        return self.is_unseen(name) and self._family(name) is self.references

    def settle(self, name: str, data_dir: Path | str | None) -> str:
        """The name as a search stores it: complete, so that it means the same on other machines."""
        family, name = self._family(name), self.named(name)
        return name if family is None else family.settle(name, data_dir)


DATASETS = Datasets()


def load_train(name: str, data_dir: Path | str | None = None, normalize: str = "dataset") -> Any:
    """Training and validation examples together, normalised, on the CPU. Reads no test file."""
    train, validation = load_search(name, data_dir, normalize)
    return train if validation is None else train.joined(validation)


def load_search(
    name: str, data_dir: Path | str | None = None, normalize: str = "dataset"
) -> tuple[Any, Any]:
    """(training examples, validation examples or None where they are to be split off), normalised,
    on the CPU. Reads no test file."""
    train = _load(name, "train", data_dir, normalize)
    given = DATASETS.get(name).read_val is not None
    return train, _load(name, "val", data_dir, normalize) if given else None


def load_test(name: str, data_dir: Path | str | None = None, normalize: str = "dataset") -> Any:
    """The test examples, normalised, on the CPU. For final training only."""
    return _load(name, "test", data_dir, normalize)


def missing_test(name: str, data_dir: Path | str | None = None) -> str | None:
    """What is missing of the test part, which only final training needs; None: nothing, or the
    whole dataset."""
    info = DATASETS.get(name)
    if info.own is not None:
        return info.find_test(Path())
    where = _known_dir(info, data_dir)
    if info.embedded or where is None or not info.is_there(where):
        return None
    return info.find_test(where)


def train_examples(name: str, data_dir: Path | str | None = None) -> int | None:
    """How many training examples a dataset has, validation included; None: unknown without its
    files."""
    info = DATASETS.get(name)
    if info.count_train is None:
        return info.train_size or None
    where = _known_dir(info, data_dir)
    return info.count_train(where) if where is not None and info.is_there(where) else None


def _known_dir(info: DatasetInfo, data_dir: Path | str | None) -> Path | None:
    if info.has_path:
        return Path("/")
    chosen = data_dir or os.environ.get("BITFRONT_DATA")
    return Path(chosen).expanduser().resolve() if chosen else None


def _read_from(info: DatasetInfo, data_dir: Path | str | None) -> Path | None:
    """The directory that the folder of a dataset is in; None where it has no files."""
    if info.embedded:
        return None
    known = _known_dir(info, data_dir) if info.has_path else None
    return known or resolve_data_dir(info.name, info.how_to_get(), data_dir)


def resolve_data_dir(name: str, how_to_get: str, data_dir: Path | str | None = None) -> Path:
    """The directory of the datasets: the argument, else BITFRONT_DATA, else a UserError."""
    chosen = data_dir or os.environ.get("BITFRONT_DATA")
    if not chosen:
        raise MissingDataError(
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


def _load(name: str, part: PartName, data_dir: Path | str | None, normalize: str) -> Any:
    info = DATASETS.get(name)
    mean, std = pixel_statistics(info, normalize)
    info = replace(info, mean=mean, std=std)
    where = _read_from(info, data_dir)
    stored = _read(info.name, part, where)
    if isinstance(stored, tuple):
        x, y = stored
        x, y = normalise(x, info), y.clone()
        return Arrays(x, y) if info.tasks == 1 else TaskRow(x, y, info.tasks, info.tasks)
    # A part that is not held in one array normalises when it reads, by its own `info`.
    return replace(stored, info=info)


def class_names(name: str, data_dir: Path | str | None = None) -> list[str]:
    """The names of the classes of a dataset in the order of labels, where they are known here."""
    info = DATASETS.get(name)
    where = _known_dir(info, data_dir) or Path()
    try:
        names = list(info.name_classes(where))
    except OSError:  # they are names of folders, which are not here
        return []
    return names if len(names) == info.classes else []


# A function that returns training examples (x, y) which another process has read from disk.
Fetch = Callable[[], tuple[np.ndarray, np.ndarray]]
_lent: dict[tuple[str, str], Fetch] = {}
Stored = dict[PartName, tuple[np.ndarray, np.ndarray]]


def lend(name: str, part: PartName, fetch: Fetch) -> None:
    """Make `fetch` the source of a dataset's examples in their stored form. The arrays may be
    memory shared with other processes: they are only read, and normalising copies them."""
    _lent[name, part] = fetch


def stored_arrays(name: str, data_dir: Path | str | None = None) -> Stored | None:
    """The training examples, and those of a validation part of its own, as they are stored, if they
    are arrays; None otherwise."""
    info = DATASETS.get(name)
    where = _read_from(info, data_dir)
    parts: tuple[PartName, ...] = ("train",) if info.read_val is None else ("train", "val")
    stored = {part: _read(info.name, part, where) for part in parts}
    if not all(isinstance(arrays, tuple) for arrays in stored.values()):
        return None
    return {part: (x.numpy(), y.numpy()) for part, (x, y) in stored.items()}


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
def _read(name: str, part: PartName, data_dir: Path | None) -> Any:
    if (name, part) in _lent:
        return _borrowed(_lent[name, part])
    info = DATASETS.get(name)
    read = {"train": info.read_train, "val": info.read_val, "test": info.read_test}[part]
    assert read is not None
    return read(data_dir)


def normalise(x: torch.Tensor, info: DatasetInfo) -> torch.Tensor:
    """Images with the mean and the standard deviation of their dataset taken out; integers of a
    dataset that has them as they are."""
    import torch

    if info.integers:
        return x.to(torch.int64, copy=True)
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    per_channel = (1, -1) + (1,) * (x.ndim - 2)
    mean = torch.tensor(info.mean, device=x.device).mul_(scale).view(per_channel)
    std = torch.tensor(info.std, device=x.device).mul_(scale).view(per_channel)
    # A copy, since the stored tensor is cached.
    return x.to(torch.float32, copy=True).sub_(mean).div_(std)
