"""Images in folders, one folder per class: TinyImageNet, ImageNet and a user's own (`folder:NAME`).

A dataset of at most IN_MEMORY_BYTES as float32 images is kept in memory on the training device, a
larger one is streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bitfront.trainables.data.datasets import (
    DATASETS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    DatasetInfo,
    Family,
    resolve_data_dir,
)
from bitfront.trainables.data.parts import stratified
from bitfront.trainables.data.streams import Streamed, decode
from bitfront.trainables.errors import MissingDataError, UserError
from bitfront.trainables.own_code import find_path
from bitfront.trainables.registry import is_count
from bitfront.trainables.text_files import whole_path

IN_MEMORY_BYTES = 2 * 1024**3
DEFAULT_SIZE = 224
# The last word of the name of images without a test part, and the share of them that is set aside.
FLAT = "flat"
TEST_SHARE = 0.2
# The seed that chooses the test images is part of the dataset.
_TEST_SEED = (0, 4)
ANNOTATIONS = "val_annotations.txt"
# The image types that torchvision reads.
IMAGE_TYPES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}


def class_names(train: Path, last: str = "") -> list[str]:
    """The names of the class folders of the training part, sorted; a label is an index in them.
    With `last` those up to it, the first classes of a larger dataset."""
    names = sorted(entry.name for entry in train.iterdir() if entry.is_dir())
    return [name for name in names if name <= last] if last else names


def _test_folder(root: Path) -> Path:
    """The folder of the test part: `test` where it has one folder per class, else `val`. The labels
    of `test` are not published for TinyImageNet and ImageNet; final training tests on their
    `val`."""
    test = root / "test"
    sorted_in = test.is_dir() and any(e.is_dir() and e.name != "images" for e in test.iterdir())
    return test if sorted_in else root / "val"


def image_files(folder: Path, classes: list[str], last: str = "") -> tuple[list[str], list[int]]:
    """(paths, labels) of one part, of the classes up to `last` if it is given. Its layout is one
    folder per class, with images at any depth, or that of TinyImageNet's validation part, one
    folder of images and a text file of classes."""
    from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

    label_of = {name: label for label, name in enumerate(classes)}
    annotations = folder / ANNOTATIONS
    if annotations.is_file():
        lines = [line.split("\t") for line in annotations.read_text().splitlines() if line.strip()]
        pairs = [(str(folder / "images" / line[0]), line[1]) for line in lines if len(line) > 1]
        _known_classes(folder, {name for _, name in pairs}, label_of)
        return [file for file, _ in pairs], [label_of[name] for _, name in pairs]
    present = class_names(folder, last)
    _known_classes(folder, set(present), label_of)
    here = {name: label_of[name] for name in present}
    found = make_dataset(str(folder), here, extensions=IMG_EXTENSIONS, allow_empty=True)
    return [file for file, _ in found], [label for _, label in found]


def _known_classes(folder: Path, names: set[str], label_of: dict[str, int]) -> None:
    unknown = sorted(names - set(label_of))
    if unknown:
        raise UserError(f"{folder}: class '{unknown[0]}' is not among those of the training part")


def _images(folder: Path) -> Iterator[Path]:
    """The image files of one part, at any depth."""
    return (f for f in folder.rglob("*") if f.suffix.lower() in IMAGE_TYPES)


def _is_flat(folder: Path) -> bool:
    """Whether the classes are folders of images directly inside, without `train` and `test`."""
    if not folder.is_dir() or (folder / "train").is_dir():
        return False
    classes = [entry for entry in folder.iterdir() if entry.is_dir()]
    named = {entry.name for entry in classes} & {"test", "val"}
    return len(classes) > 1 and not named and any(next(_images(c), None) for c in classes)


def _flat_part(files: list[str], labels: list[int], train: bool) -> tuple[list[str], list[int]]:
    """The training or the test part of images that have only one: a fixed share of every class is
    the test part."""
    chosen = np.zeros(len(files), dtype=bool)
    chosen[stratified(np.array(labels), round(TEST_SHARE * len(files)), _TEST_SEED)] = True
    kept = np.flatnonzero(~chosen if train else chosen)
    return [files[i] for i in kept], [labels[i] for i in kept]


def _find_test(folder: str, data_dir: Path) -> str | None:
    root = data_dir / folder
    if next(_images(_test_folder(root)), None) is not None:
        return None
    return f"no images in {root / 'test'}/CLASS, nor in {root / 'val'}/CLASS"


def _count_train(folder: str, flat: bool, data_dir: Path) -> int:
    count = sum(1 for _ in _images(data_dir / folder / ("" if flat else "train")))
    return count - round(TEST_SHARE * count) if flat else count


def _read(
    name: str, folder: str, flat: bool, train: bool, data_dir: Path | None, last: str = ""
) -> Any:
    import torch

    assert data_dir is not None
    info = DATASETS.get(name)
    root = data_dir / folder
    how = f"get it with: {info.how_to_get(data_dir)}"
    first = root if flat else root / "train"
    part = first if train or flat else _test_folder(root)
    for needed in (first, part):
        if not needed.is_dir():
            raise MissingDataError(f"dataset '{name}' not found: looked for {needed}", how)
    classes = class_names(first, last)
    if len(classes) != info.classes:
        up_to = f" up to {last}" if last else ""
        raise UserError(
            f"dataset '{name}' has {info.classes} classes{up_to}, {first} has {len(classes)}",
            f"for data of your own: folder:{folder}:{info.shape[-1]}",
        )
    files, labels = image_files(part, classes, last)
    if flat:
        files, labels = _flat_part(files, labels, train)
    if not files:
        raise UserError(f"dataset '{name}' has no image in {part}", how)
    y = torch.tensor(labels, dtype=torch.int64)
    if len(files) * int(np.prod(info.shape)) * 4 > IN_MEMORY_BYTES:
        return Streamed(np.array(files), y, info)
    return torch.stack([decode(file, info.shape[-1]) for file in files]), y


def _info(
    name: str,
    folder: str,
    size: int,
    classes: int,
    flat: bool = False,
    last: str = "",
    **more: Any,
) -> DatasetInfo:
    declared: dict[str, Any] = {
        "train_size": 0,
        "test_size": 0,
        "mean": IMAGENET_MEAN,
        "std": IMAGENET_STD,
        "augmentation": "resized-crop-flip",
        "find_test": (lambda _data_dir: None) if flat else partial(_find_test, folder),
    }
    return DatasetInfo(
        name=name,
        shape=(3, size, size),
        classes=classes,
        read_train=partial(_read, name, folder, flat, True, last=last),
        read_test=partial(_read, name, folder, flat, False, last=last),
        folder=folder if flat else f"{folder}/train",
        name_classes=lambda where: class_names(
            where / (folder if flat else f"{folder}/train"), last
        ),
        **(declared | more),
    )


_ARCHIVE = "tiny-imagenet-200.zip"
DATASETS.add(
    "tiny-imagenet",
    _info(
        "tiny-imagenet",
        "tiny-imagenet-200",
        size=64,
        classes=200,
        train_size=100_000,
        test_size=10_000,
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        augmentation="affine-flip",
        source="Photographs of 200 kinds of things, 64x64 colour (Le and Yang, 2015); tested on "
        "its val part.",
        get_hint=f"curl -o DIR/{_ARCHIVE} http://cs231n.stanford.edu/{_ARCHIVE} && "
        f"unzip -q DIR/{_ARCHIVE} -d DIR",
    ),
)
DATASETS.add(
    "tiny-imagenet-20",
    _info(
        "tiny-imagenet-20",
        "tiny-imagenet-20",
        size=64,
        classes=20,
        train_size=10_000,
        test_size=1_000,
        mean=(0.4926, 0.4458, 0.3958),
        std=(0.2801, 0.2742, 0.2841),
        augmentation="affine-flip",
        source="20 of the 200 classes of tiny-imagenet, a sample for development.",
        get_hint="copy 20 class folders of tiny-imagenet's train and val parts to "
        "DIR/tiny-imagenet-20/train and DIR/tiny-imagenet-20/val",
    ),
)
_SPLITS = "for part in ('train', 'val')"
DATASETS.add(
    "imagenet",
    _info(
        "imagenet",
        "imagenet",
        size=224,
        classes=1_000,
        train_size=1_281_167,
        test_size=50_000,
        source="Photographs of 1000 kinds of things at 224x224 (Russakovsky et al., 2015); tested "
        "on its val part.",
        get_hint="put the three ILSVRC2012 archives of image-net.org into DIR/imagenet, then: "
        f'python -c "import torchvision; '
        f"[torchvision.datasets.ImageNet('DIR/imagenet', part) {_SPLITS}]\"",
    ),
)
# The 100 classes that the Continuum library lists for its ImageNet100 are the first ones.
LAST_OF_100 = "n01855672"
DATASETS.add(
    "imagenet100",
    _info(
        "imagenet100",
        "imagenet",
        size=224,
        classes=100,
        last=LAST_OF_100,
        train_size=129_395,
        test_size=5_000,
        source="The first 100 classes of imagenet, n01440764 to n01855672, as Continuum has them; "
        "tested on its val part.",
        get_hint="put imagenet, or these classes of it, into DIR/imagenet/train/CLASS and "
        "DIR/imagenet/val/CLASS (`bitfront datasets imagenet`)",
    ),
)


def _parsed(name: str) -> tuple[str, int, int | None, bool]:
    """(folder, size, classes, flat) of `folder:NAME`, `folder:NAME:64`, `folder:NAME:64:20` or
    `folder:NAME:64:20:flat`. NAME may be a path."""
    folder, *numbers = name.split(":")[1:]
    flat = len(numbers) == 3 and numbers[-1] == FLAT
    numbers = numbers[:2] if flat else numbers
    if not folder or len(numbers) > 2 or not all(is_count(n) and int(n) > 0 for n in numbers):
        raise UserError(
            f"dataset '{name}': write folder:NAME:SIZE, for example folder:birds:64 for images "
            "resized to 64x64, or with a path, folder:./birds:64"
        )
    size = int(numbers[0]) if numbers else DEFAULT_SIZE
    return folder, size, int(numbers[1]) if len(numbers) == 2 else None, flat


def _located(folder: str, name: str, how: str, data_dir: Path | str | None) -> str:
    """The folder as the settled name says it: a whole path, or its name in the data directory."""
    known = data_dir or os.environ.get("BITFRONT_DATA")
    beside = find_path(folder)
    if "/" in folder or folder.startswith((".", "~")) or (not known and beside.is_dir()):
        return str(find_path(folder, known))
    resolve_data_dir(name, how, data_dir)
    return folder


def _settle(name: str, data_dir: Path | str | None) -> str:
    """The name as `folder:NAME:SIZE:CLASSES`; classes that are not given are counted."""
    folder, size, classes, _ = _parsed(name)
    if classes is not None:
        return name
    how = f"put the images into DIR/{folder}/train/CLASS and DIR/{folder}/test/CLASS"
    located = _located(folder, name, how, data_dir)
    whole = located.startswith("/")
    root = Path(located) if whole else resolve_data_dir(name, how, data_dir) / folder
    flat = _is_flat(root)
    train = root if flat else whole_path(root / "train")
    count = len(class_names(train)) if train.is_dir() else 0
    if not count:
        raise UserError(
            f"dataset '{name}' not found: looked for folders of images in {train}",
            f"put the images into {root}/CLASS, or into {root}/train/CLASS and {root}/test/CLASS",
        )
    return f"folder:{located}:{size}:{count}" + (f":{FLAT}" if flat else "")


@lru_cache(maxsize=64)
def _declared(name: str) -> DatasetInfo:
    folder, size, classes, flat = _parsed(name)
    assert classes is not None
    return _info(
        name,
        folder,
        size,
        classes,
        flat,
        count_train=partial(_count_train, folder, flat),
        source=f"Images of {classes} kinds of things at {size}x{size}, a user's own.",
        get_hint=f"put the images into DIR/{folder}/train/CLASS and DIR/{folder}/test/CLASS",
    )


DATASETS.families["folder"] = Family(
    info=lambda name: _declared(_settle(name, None)), settle=_settle
)
