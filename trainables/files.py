"""Files in folders that other users may have made: nothing is written through a link, and nothing
outside a folder is deleted. Files are written atomically. Standard library only."""

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


def user_folder() -> Path:
    """The folder for what bitfront keeps about this user on this machine, outside of all
    searches."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".config"
    return base / "bitfront"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a new file of the same suffix to write to, which replaces `path` when the block ends.
    A link at `path` is replaced itself, not its target."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # An unpredictable name, and the usual permissions, unlike those of `tempfile`.
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part{path.suffix}")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)  # half a file on a full disk
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write the content so that `path` holds all of it or what it held before."""
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    with replacing(path) as part:
        part.write_bytes(data)


def opened(path: Path, mode: str = "a") -> IO[str]:
    """Open a text file that is not a link, to be locked, read (`r`) or appended to (`a`). Opening
    never blocks, also where a pipe is in its place."""
    flags = os.O_RDONLY if mode == "r" else os.O_RDWR | os.O_CREAT | os.O_APPEND
    refuse_link(path)
    number = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    return os.fdopen(number, mode, encoding="utf-8")


def refuse_link(path: Path) -> Path:
    """The path itself; a UserError where it is a link."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a link to {os.readlink(path)}: {LINK}",
            "delete it, or put what it leads to in its place",
        )
    return path


def refuse_links(folder: Path) -> None:
    """Raise a UserError where the folder or anything in it is a link."""
    refuse_link(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            refuse_link(Path(place) / name)


def within(folder: Path, path: Path) -> Path:
    """The path itself; a UserError where it resolves to a place outside `folder`."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"{path} leads out of {folder}, to {path.resolve()}: nothing is written there",
            "delete the link, or put what it leads to in its place",
        )
    return path


def discard(path: Path) -> None:
    """Delete a file, a folder with its content, or a link, but not the target of a link. What
    cannot be deleted stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
