"""The folder of a final training and the recipe it belongs to. What was trained is never
overwritten: a folder holds the seeds of one network, trained in one way; another training gets its
own folder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bitfront.search.recipes.recipe import Recipe
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.text_files import read_json

FILE = "training.json"
FORMAT = 1
RESULT = "result.json"
# Names of the files of a seed.
SEED_FILE = re.compile(r"seed(\d+)(?:-(?P<identity>.+)\.state|\.json|\.safetensors)")
# Errors of flock on disks that have no locks, such as some network disks.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@dataclass(frozen=True)
class Owner:
    """The training a folder was made for."""

    identity: str
    recipe: str
    epochs: int
    rest: str
    format: int = FORMAT
    keep: str = "last"

    def text(self) -> str:
        half = "" if self.rest == "float32" else f", {self.rest}"
        best = "" if self.keep == "last" else ", the best one kept"
        return f"the training of {self.recipe} (epochs: {self.epochs}{best}{half})"

    def as_json(self) -> dict[str, Any]:
        """What is written; `keep` only where it is used, so that earlier versions read it too."""
        content = asdict(self)
        if self.keep == "last":
            del content["keep"]
        return content


def final_spec(recipe: Recipe, seed: int) -> TrialSpec:
    """The specification of the training with one seed."""
    task = recipe.spec.task.model_copy(update={"epochs": recipe.final.epochs})
    return recipe.spec.model_copy(update={"task": task, "seed": seed})


def seed_identity(recipe: Recipe, seed: int, length: int = 8) -> str:
    """A hash of the network, its training with this seed, and how it is stored."""
    rest, keep = recipe.final.rest, recipe.final.keep
    identity = final_spec(recipe, seed).fingerprint(length=length)
    kept = "" if keep == "last" else f"-{keep}"
    return identity + kept + ("" if rest == "float32" else f"-{rest}")


def owner_of(recipe: Recipe) -> Owner:
    """The owner of a folder in which this recipe is trained. Its identity depends on what is
    trained, not on the recipe's name, seeds or origin."""
    identity = seed_identity(recipe, seed=0, length=16)
    final = recipe.final
    return Owner(identity, recipe.name, final.epochs, final.rest, keep=final.keep)


def other_owner(folder: Path, recipe: Recipe) -> str | None:
    """A description of the training that the folder holds; None where that is this recipe's or
    there is none."""
    stored = _stored_owner(folder)
    if stored is not None:
        return None if stored.identity == owner_of(recipe).identity else stored.text()
    found = [m for f in _entries(folder) if (m := SEED_FILE.fullmatch(f.name))]
    if found:
        ours = all(_is_of(recipe, folder, match) for match in found)
        return None if ours else "the training of another recipe"
    return "a result of something else" if (folder / RESULT).exists() else None


def folder_for(recipe: Recipe, file: Path) -> tuple[Path, str | None]:
    """The default folder of a recipe's training and a note about it: RECIPE-trained, or one beside
    it where that holds another training. The same recipe always gets the same folder."""
    usual = file.with_name(f"{file.stem}-trained")
    other = other_owner(usual, recipe)
    if other is None:
        return usual, None
    own = usual.with_name(f"{usual.name}-{owner_of(recipe).identity[:8]}")
    if recipe.final.keep != "last":
        own = own.with_name(f"{own.name}-{recipe.final.keep}")
    if recipe.final.rest != "float32":
        own = own.with_name(f"{own.name}-{recipe.final.rest}")
    return own, f"{usual} holds {other}, which stays as it is: this one goes to {own}"


def refuse_other(folder: Path, recipe: Recipe) -> None:
    """Raise where the folder holds something else than this recipe's training."""
    other = other_owner(folder, recipe)
    if other is not None:
        raise UserError(
            f"{folder} holds {other}, which is never overwritten",
            "train into another folder: -o DIR; without -o one is chosen",
        )


@contextmanager
def claimed(folder: Path, recipe: Recipe) -> Iterator[None]:
    """Make the folder this recipe's, and this process the only one that trains in it."""
    refuse_other(folder, recipe)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sign(folder, recipe)
        handle = (folder / FILE).open("r")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"{folder} cannot be written: {error.strerror or error}", "another folder: -o DIR"
        ) from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise UserError(
                    f"another bitfront train is at work in {folder}",
                    "wait for it, or train into another folder: -o DIR",
                ) from None
        yield


def check_free(recipe: Recipe, folder: Path, seed: int) -> None:
    """Raise where training an unfinished seed would overwrite a result or a network. A packed
    network with its state beside it was interrupted just before its result: it is written again,
    the same."""
    result, packed = (folder / f"seed{seed}{end}" for end in (".json", ".safetensors"))
    state = folder / f"seed{seed}-{seed_identity(recipe, seed)}.state"
    if result.exists() or (packed.exists() and not state.exists()):
        there = packed if packed.exists() else result
        raise UserError(
            f"{there} is there, but {result.name} does not say that it is finished and of this "
            "recipe; it is not overwritten",
            f"move both away to train seed {seed} again, or train into another folder: -o DIR",
        )


def trained_seeds(folder: Path) -> list[int]:
    """The seeds that have a result in the folder."""
    found = (re.fullmatch(r"seed(\d+)\.json", file.name) for file in _entries(folder))
    return sorted(int(match[1]) for match in found if match)


def _is_of(recipe: Recipe, folder: Path, match: re.Match[str]) -> bool:
    """Whether a seed's file is of this recipe, for folders of version 0.1 that name no owner."""
    seed, name = int(match[1]), match[0]
    if match["identity"] is not None:
        return match["identity"] == seed_identity(recipe, seed)
    if name.endswith(".safetensors"):
        beside = (f"seed{seed}.json", f"seed{seed}-{seed_identity(recipe, seed)}.state")
        return any((folder / file).exists() for file in beside)
    stored = _json(folder / name)
    return stored.get("identity") == seed_identity(recipe, seed)


def _stored_owner(folder: Path) -> Owner | None:
    stored = _json(folder / FILE)
    try:
        return Owner(**stored)
    except TypeError:
        return None


def _json(file: Path) -> dict[str, Any]:
    try:
        stored = read_json(file)
    except UserError:
        return {}
    return stored if isinstance(stored, dict) else {}


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sign(folder: Path, recipe: Recipe) -> None:
    """Write the owner into the folder where none is written. Of two processes at once one writes,
    and the other one finds its owner there."""
    with _one_at_a_time(folder):
        if _stored_owner(folder) is None:
            write_atomically(folder / FILE, json.dumps(owner_of(recipe).as_json(), indent=2))
    refuse_other(folder, recipe)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself, so that a damaged file in it can be replaced; without one
    on disks that have no locks."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield
    finally:
        os.close(number)
