"""Files in folders that somebody else may have made: nothing is written through a link, and nothing
is deleted outside. A file appears whole or not at all. Standard library only."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bitfront.trainables.errors import UserError

LINK = "nothing is read or written through a link in the folder of a search"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file to write to, of the same suffix, that takes the place of `path` in the end: also
    of a link that is there, and not of what it leads to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name nobody can have put a link at, and an ordinary mode, which `tempfile` does not give.
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part{path.suffix}")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)  # half a file on a full disk
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    with replacing(path) as part:
        part.write_bytes(data)


def opened(path: Path, mode: str = "a") -> IO[str]:
    """A text file to be locked, read (`r`) or added to (`a`), which must not be a link. Nothing
    that blocks, such as a pipe, is waited for."""
    flags = os.O_RDONLY if mode == "r" else os.O_RDWR | os.O_CREAT | os.O_APPEND
    refuse_link(path)
    number = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    return os.fdopen(number, mode, encoding="utf-8")


def refuse_link(path: Path) -> Path:
    """The path itself, unless it is a link."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a link to {os.readlink(path)}: {LINK}",
            "delete it, or put what it leads to in its place",
        )
    return path


def refuse_links(folder: Path) -> None:
    """Neither a folder nor anything in it is a link."""
    refuse_link(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            refuse_link(Path(place) / name)


def within(folder: Path, path: Path) -> Path:
    """A path that no link between it and `folder` leads out of that."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"{path} leads out of {folder}, to {path.resolve()}: nothing is written there",
            "delete the link, or put what it leads to in its place",
        )
    return path


def discard(path: Path) -> None:
    """Delete a file, a folder with all that is in it, or a link; never what a link leads to.
    What cannot be deleted stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
