"""The code of the user's own that a search runs, kept in its folder (`code/`): the search continues
with the code it began with, and what has changed since can be named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from bitfront.trainables.errors import UserError
from bitfront.trainables.files import within, write_atomically
from bitfront.trainables.own_code import places
from bitfront.trainables.own_code.reference import Reference, parse, shown

FOLDER = "code"


def keep(folder: Path, references: Iterable[str]) -> None:
    """Write the files of these references into the folder of a search, those of installed packages
    excepted."""
    for text in references:
        reference = parse(text)
        source = places.find(reference)
        place = folder / FOLDER / reference.digest
        if source.installed or source.root.is_relative_to(place):
            continue
        for name, content in source.files.items():
            file = within(folder, place / name)
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(file, content)


def look(folder: Path) -> None:
    """Look for code in the folder of a search too. What is found there runs only if it has the hash
    of the reference, and the user trusts it."""
    kept = folder / FOLDER
    if kept.is_dir() and not kept.is_symlink():
        for place in sorted(kept.iterdir()):
            if place.is_dir() and not place.is_symlink():
                places.look_in(place)


def change(folder: Path, before: Reference, after: Reference) -> str:
    """What has changed between two states of code of one name, in words."""
    words = f"the code of {shown(str(before))} was @{before.digest}, it is @{after.digest} now"
    old = folder / FOLDER / before.digest
    try:
        new = places.find(after)
        kept = [file for file in old.rglob("*") if file.is_file()]
        then = {file.relative_to(old).as_posix(): file.read_bytes() for file in kept}
    except (OSError, UserError):
        return words
    names = {*then, *new.files} if then else set()
    differing = sorted(name for name in names if then.get(name) != new.files.get(name))
    return f"{words} ({', '.join(differing[:5])})" if differing else words


def edited(references: Iterable[str], instead: str, beside: Iterable[Path] = ()) -> list[str]:
    """A sentence for each file of the user's own that is no longer the code that runs. `instead`:
    what to do to use the file as it is now."""
    said: dict[Path, str] = {}
    for text in references:
        with contextlib.suppress(UserError):  # code that is not there is an error where it is run
            found = places.edited(text, beside)
            if found is not None:
                used, file, digest = found
                now = f"now @{digest}" if digest else "not readable now"
                said.setdefault(
                    file,
                    f"{_near(file)} has changed (was @{parse(text).digest}, {now}) and is not "
                    f"used: the copy {_near(used.path)} is. To use the file as it is, {instead}",
                )
    return list(said.values())


def _near(path: Path) -> Path:
    """The path as seen from the current folder, where it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
