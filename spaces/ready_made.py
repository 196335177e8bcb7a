"""The paths of the YAML files that come with bitfront, by name: searches and recipes of teachers.
`search.config` and `search.recipes` read them."""

from __future__ import annotations

import os
from pathlib import Path

from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.text_files import whole_path

HERE = Path(__file__).parent


def searches() -> dict[str, Path]:
    """The paths of the ready-made searches, by name."""
    return {path.stem: path for path in sorted((HERE / "searches").glob("*.yaml"))}


# Searches of version 0.1, and those that carry their rows today.
FORMER = {
    "pcpp-deit-cifar": "pcpp-deit-t-cifar10",
    "pcpp-deit-cifar100": "pcpp-deit-t-cifar100",
    "robust-rn34-cifar10-fast": "robust-rn34-cifar10",
    "robust-rn34-rivals-full": "robust-rn34-rivals",
}


def search_file(text: str) -> Path:
    """The path of a search YAML: a file, or a ready-made search by its name."""
    known = searches()
    if text in known and not os.path.isfile(text):
        return known[text]
    path = Path(text)
    if path.suffix in (".yaml", ".yml") or os.path.exists(text):
        return path
    if text in FORMER:
        raise UserError(f"'{text}' is in '{FORMER[text]}' now", f"bitfront run {FORMER[text]}")
    raise UserError(
        f"'{text}' is neither a file nor a ready-made search, {did_you_mean(text, known)}"
    )


def teacher_file(text: str) -> Path:
    """The path of a teacher: a file, or the recipe of a ready-made teacher by its name."""
    path = whole_path(text)
    known = {recipe.stem: recipe for recipe in (HERE / "teachers").glob("*.yaml")}
    return known.get(text, path) if not path.exists() else path
