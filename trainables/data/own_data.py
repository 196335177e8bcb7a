"""Registers data of the user's own: by reference (`my_data.py:load`), `arrays:FILE` and
`hf:PATH`. How they are read is in the package `own`."""

from __future__ import annotations

from pathlib import Path

from bitfront.trainables import own_code
from bitfront.trainables.data.datasets import DATASETS, Family
from bitfront.trainables.data.own import array_files, hugging_face
from bitfront.trainables.data.own.declaration import (
    arguments_of,
    base_of,
    is_settled,
    read,
    with_arguments,
)
from bitfront.trainables.data.own.look import info_of, look


def _settle_reference(name: str, _data_dir: Path | str | None) -> str:
    """The name with the hash of the code and the declaration. Runs the code: for names that the
    user wrote."""
    if is_settled(name):
        return _checked(name)
    return look(with_arguments(own_code.settle(base_of(name)), arguments_of(name))).name


def _settle_arrays(name: str, _data_dir: Path | str | None) -> str:
    return _checked(name) if is_settled(name) else look(f"arrays:{array_files.file_of(name)}").name


def _settle_hugging_face(name: str, data_dir: Path | str | None) -> str:
    if is_settled(name):
        return _checked(name)
    path, *columns = hugging_face.parsed(name)
    folder = own_code.find_path(path, data_dir)
    return look(":".join(map(str, filter(None, ("hf", folder, *columns))))).name


def _checked(name: str) -> str:
    read(name)
    return name


DATASETS.references = Family(info_of, _settle_reference, looked_at=True)
DATASETS.families[array_files.FAMILY] = Family(info_of, _settle_arrays, looked_at=True)
DATASETS.families[hugging_face.FAMILY] = Family(info_of, _settle_hugging_face, looked_at=True)
