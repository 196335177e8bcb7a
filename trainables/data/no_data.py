"""The input of a network that was trained outside of bitfront: `input:3x32x32:10`, a shape and a
number of classes without data; `input:64:10:int64` for a network that takes integers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from bitfront.trainables.data.datasets import DATASETS, DatasetInfo, Family
from bitfront.trainables.data.own.declaration import INTEGERS
from bitfront.trainables.errors import UserError
from bitfront.trainables.registry import is_count


def input_name(shape: tuple[int, ...], classes: int, integers: bool = False) -> str:
    """The name of the dataset that stands for such inputs and outputs."""
    name = f"input:{'x'.join(map(str, shape))}:{classes}"
    return f"{name}:{INTEGERS}" if integers else name


def _refuse(_data_dir: Path | None) -> Any:
    raise UserError("input:SHAPE:CLASSES says what a network takes, there are no data")


@lru_cache(maxsize=64)
def _info(name: str) -> DatasetInfo:
    plain = name.removesuffix(f":{INTEGERS}")
    numbers, _, classes = plain.removeprefix("input:").partition(":")
    sides = numbers.split("x")
    if not all(is_count(n) and int(n) > 0 for n in (*sides, classes)):
        raise UserError(f"dataset '{name}': write input:SHAPE:CLASSES, such as input:3x32x32:10")
    shape = tuple(map(int, sides))
    return DatasetInfo(
        name=name,
        shape=shape,
        classes=int(classes),
        train_size=0,
        test_size=0,
        mean=(0.0,) * shape[0],
        std=(1.0,) * shape[0],
        source="The input of a network that was trained outside of bitfront.",
        get_hint="there are no data",
        integers=plain != name,
        read_train=_refuse,
        read_test=_refuse,
    )


DATASETS.families["input"] = Family(info=_info, settle=lambda name, _data_dir: name)
