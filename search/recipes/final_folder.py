"""To which recipe a folder of final training belongs. What was trained is never overwritten: a
folder holds the seeds of one network, trained in one way, and another one gets its own folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.text_files import read_json

if TYPE_CHECKING:
    from bitfront.search.recipes.recipe import Recipe

FILE = "training.json"
FORMAT = 1
RESULT = "result.json"
# What the files of a seed are called.
SEED_FILE = re.compile(r"seed(\d+)(?:-(?P<identity>.+)\.state|\.json|\.safetensors)")
# Where flock is not to be had, as on some network disks.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@dataclass(frozen=True)
class Owner:
    """What a folder was made for."""

    identity: str
    recipe: str
    epochs: int
    rest: str
    format: int = FORMAT

    def text(self) -> str:
        half = "" if self.rest == "float32" else f", {self.rest}"
        return f"the training of {self.recipe} (epochs: {self.epochs}{half})"


def final_spec(recipe: Recipe, seed: int) -> TrialSpec:
    """What is trained with one seed."""
    task = recipe.spec.task.model_copy(update={"epochs": recipe.final.epochs})
    return recipe.spec.model_copy(update={"task": task, "seed": seed})


def seed_identity(recipe: Recipe, seed: int, length: int = 8) -> str:
    """The network, how it is trained with this seed, and how it is stored."""
    rest = recipe.final.rest
    identity = final_spec(recipe, seed).fingerprint(length=length)
    return identity + ("" if rest == "float32" else f"-{rest}")


def owner_of(recipe: Recipe) -> Owner:
    """The recipe by its content: its name, its seeds and where it came from are no part of it."""
    identity = seed_identity(recipe, seed=0, length=16)
    return Owner(identity, recipe.name, recipe.final.epochs, recipe.final.rest)


def other_owner(folder: Path, recipe: Recipe) -> str | None:
    """What the folder holds, where that is not of this recipe."""
    stored = _stored_owner(folder)
    if stored is not None:
        return None if stored.identity == owner_of(recipe).identity else stored.text()
    found = [m for f in _entries(folder) if (m := SEED_FILE.fullmatch(f.name))]
    if found:
        ours = all(_is_of(recipe, folder, match) for match in found)
        return None if ours else "the training of another recipe"
    return "a result of something else" if (folder / RESULT).exists() else None


def folder_for(recipe: Recipe, file: Path) -> tuple[Path, str | None]:
    """Where a recipe is trained when nobody says: RECIPE-trained, or beside it where that holds
    another training; with what there is to say about it. The same recipe finds its own again."""
    usual = file.with_name(f"{file.stem}-trained")
    other = other_owner(usual, recipe)
    if other is None:
        return usual, None
    own = usual.with_name(f"{usual.name}-{owner_of(recipe).identity[:8]}")
    if recipe.final.rest != "float32":
        own = own.with_name(f"{own.name}-{recipe.final.rest}")
    return own, f"{usual} holds {other}, which stays as it is: this one goes to {own}"


def refuse_other(folder: Path, recipe: Recipe) -> None:
    other = other_owner(folder, recipe)
    if other is not None:
        raise UserError(
            f"{folder} holds {other}, which is never overwritten",
            "train into another folder: -o DIR; without -o one is chosen",
        )


@contextmanager
def claimed(folder: Path, recipe: Recipe) -> Iterator[None]:
    """The folder is this recipe's from now on, and this process the only one that trains in it."""
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
    """Nothing that was trained is where a seed that is not finished would be written. A packed
    network beside its state was cut off just before its result: it is written again, the same."""
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
    """Seeds with a result in the folder."""
    found = (re.fullmatch(r"seed(\d+)\.json", file.name) for file in _entries(folder))
    return sorted(int(match[1]) for match in found if match)


def _is_of(recipe: Recipe, folder: Path, match: re.Match[str]) -> bool:
    """Of a folder that says nothing itself, as version 0.1 made them: a seed's own file tells."""
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
    """Of two that come at once only one signs."""
    file = folder / FILE
    if file.exists() and _stored_owner(folder) is not None:
        return
    file.unlink(missing_ok=True)
    mine = folder / f"{FILE}.{os.getpid()}"
    write_atomically(mine, json.dumps(asdict(owner_of(recipe)), indent=2))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(mine, file)
    except OSError:  # a disk without links
        mine.replace(file)
    finally:
        mine.unlink(missing_ok=True)
    refuse_other(folder, recipe)
