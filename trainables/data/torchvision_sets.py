"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, read from files in torchvision's layout.
Nothing is downloaded here, and each part is read without opening the files of the other."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data.datasets import DATASETS, DatasetInfo, Family
from bitfront.trainables.errors import MissingDataError, UserError, first_line
from bitfront.trainables.registry import is_count

if TYPE_CHECKING:
    import torch

# What torchvision raises for files that are missing, cut short or overwritten.
_DAMAGE = (
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    AssertionError,
    KeyError,
    pickle.UnpicklingError,
)


def _mnist_part(torchvision_class: Any, train: bool) -> dict[str, Any]:
    wanted = "train-" if train else "t10k-"
    return {
        "resources": [r for r in torchvision_class.resources if r[0].startswith(wanted)],
        # Old torchvision stored whole pickled tensors; those are never loaded here.
        "_check_legacy_exist": lambda _: False,
    }


def _cifar_part(_torchvision_class: Any, train: bool) -> dict[str, Any]:
    return {"test_list": []} if train else {"train_list": []}


def _read(
    name: str, class_name: str, folder: str, train: bool, data_dir: Path | None
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch
    from torchvision import datasets

    assert data_dir is not None
    where = data_dir / folder
    how = DATASETS.get(name).how_to_get(data_dir)
    if not where.is_dir():
        how = f"get it with: {how}"
        raise MissingDataError(f"dataset '{name}' not found: looked for {where}", how)

    # torchvision checks the files of both parts, whichever is loaded. A subclass that lists the
    # files of one part checks only those, still by their checksums.
    whole: Any = getattr(datasets, class_name)
    narrow = _mnist_part if issubclass(whole, datasets.MNIST) else _cifar_part
    part: Any = type(class_name, (whole,), narrow(whole, train))
    try:
        stored = part(str(data_dir), train=train, download=False)
        x = torch.as_tensor(stored.data)
        y = torch.as_tensor(stored.targets, dtype=torch.int64)
        if len(x) != len(y):
            raise ValueError(f"{len(x)} images but {len(y)} labels")
    except _DAMAGE as error:
        why = first_line(error).partition(". You can use download=True")[0]
        raise UserError(
            f"dataset '{name}' is incomplete or damaged in {where} ({why})",
            f"delete that folder and get it again with: {how}",
        ) from error
    # MNIST is stored without a channel axis, CIFAR with the channels last.
    return (x.unsqueeze(1) if x.ndim == 3 else x.permute(0, 3, 1, 2)).contiguous(), y


def _find_test(folder: str, data_dir: Path) -> str | None:
    """What is missing of the test part; None: nothing. Its files begin with t10k (MNIST) or test
    (CIFAR)."""
    where = data_dir / folder
    if any(next(where.glob(pattern), None) for pattern in ("t10k-*", "test*")):
        return None
    return f"no file of it in {where}"


def _declare(
    name: str,
    class_name: str,
    folder: str,
    *,
    shape: tuple[int, int, int],
    classes: int,
    train_size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    source: str,
    augmentation: str = "none",
    names: str = "",
) -> None:
    command = f"import torchvision; torchvision.datasets.{class_name}('DIR', download=True)"
    info = DatasetInfo(
        name=name,
        shape=shape,
        classes=classes,
        train_size=train_size,
        test_size=10_000,
        mean=mean,
        std=std,
        source=source,
        get_hint=f'python -c "{command}"',
        read_train=partial(_read, name, class_name, folder, True),
        read_test=partial(_read, name, class_name, folder, False),
        augmentation=augmentation,
        folder=folder,
        find_test=partial(_find_test, folder),
        name_classes=lambda _data_dir: names.split(),
    )
    DATASETS.add(name, info)


_declare(
    "mnist",
    "MNIST",
    "MNIST/raw",
    shape=(1, 28, 28),
    classes=10,
    train_size=60_000,
    mean=(0.1307,),
    std=(0.3081,),
    source="Handwritten digits, 28x28 grey (LeCun et al., 1998).",
    names="0 1 2 3 4 5 6 7 8 9",
)
_declare(
    "fashion-mnist",
    "FashionMNIST",
    "FashionMNIST/raw",
    shape=(1, 28, 28),
    classes=10,
    train_size=60_000,
    mean=(0.2860,),
    std=(0.3530,),
    source="Pictures of clothes, 28x28 grey (Xiao et al., 2017).",
    names="t-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot",
)
_declare(
    "cifar10",
    "CIFAR10",
    "cifar-10-batches-py",
    shape=(3, 32, 32),
    classes=10,
    train_size=50_000,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    source="Photographs of ten kinds of things, 32x32 colour (Krizhevsky, 2009).",
    augmentation="crop-flip",
    names="airplane automobile bird cat deer dog frog horse ship truck",
)
_declare(
    "cifar100",
    "CIFAR100",
    "cifar-100-python",
    shape=(3, 32, 32),
    classes=100,
    train_size=50_000,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    source="Photographs of a hundred kinds of things, 32x32 colour (Krizhevsky, 2009).",
    augmentation="crop-flip",
)


# --- continual learning -------------------------------------------------------------------------

PERMUTED = "permuted-mnist"


def _permuted(tasks: int, name: str) -> DatasetInfo:
    """MNIST as several tasks of continual learning, each with its own permutation of the pixels
    (docs/methods.md 2.4)."""
    return replace(
        DATASETS.get("mnist"),
        name=name,
        kind="continual",
        tasks=tasks,
        source=f"MNIST as {tasks} tasks in a row, each with its own order of the pixels.",
    )


def _permuted_by_name(name: str) -> DatasetInfo:
    count = name.partition(":")[2]
    if not is_count(count) or not 2 <= int(count) <= 100:
        raise UserError(f"dataset '{name}': {PERMUTED}:K makes K tasks, K from 2 to 100")
    return _permuted(int(count), name)


DATASETS.add(PERMUTED, _permuted(5, PERMUTED))
DATASETS.families[PERMUTED] = Family(_permuted_by_name, settle=lambda name, _data_dir: name)
