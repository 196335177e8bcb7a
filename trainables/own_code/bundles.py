"""Code on its way to another machine: the files of references as bytes, unpacked there into a
folder of their own. Code that is installed is not sent: every node has its own."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bitfront.trainables.errors import CodeError, UserError
from bitfront.trainables.own_code import places, trusted
from bitfront.trainables.own_code.reference import is_reference, parse

FOLDERS = "bitfront-code-"
# A folder is not yet locked while it is being made.
MAKING_SECONDS = 60


@dataclass(frozen=True)
class Sent:
    """The code of one reference: what the user trusts, its folder here where they named it in it,
    and its files; none where it is installed."""

    trusted: str
    root: str
    files: dict[str, bytes]


@dataclass(frozen=True)
class Bundle:
    """The code of several references, each source once."""

    sources: tuple[Sent, ...]

    def __bool__(self) -> bool:
        return bool(self.sources)


def bundle(references: Iterable[str]) -> Bundle:
    """The code of these references, which the user must trust."""
    found = {}
    for text in references:
        reference = parse(text)
        source = places.find(reference)
        trusted.check(reference, source)
        key = trusted.key(reference, source)
        root = str(source.root) if trusted.is_own(reference, source) else ""
        found[key] = Sent(key, root, {} if source.installed else dict(source.files))
    return Bundle(tuple(found.values()))


def unpack(sent: Bundle) -> None:
    """Write the code of a bundle to a temporary folder of this process, look for code there, and
    trust it: the driver, whose user trusts it, has sent it. Where the folder of the driver is here
    too and holds the same code, that one is used."""
    for each in sent.sources:
        if each.trusted in _unpacked:
            continue
        trusted.trust_now(each.trusted, each.root)
        _unpacked.add(each.trusted)
        if not each.files:
            continue
        folder = _new_folder()
        for name, content in each.files.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise UserError(f"{name}: code that was sent names a file outside its folder")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        places.look_in(folder)
        if each.root and Path(each.root).is_dir():
            places.look_in(each.root)


def _new_folder() -> Path:
    """A temporary folder that goes with this process: at its exit or, as workers are killed, when
    the next process makes one."""
    _remove_left()
    folder = Path(tempfile.mkdtemp(prefix=FOLDERS))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _lock(folder)  # held for as long as this process or a fork of it lives
    return folder


def _remove_left() -> None:
    """Remove the folders whose processes are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        try:
            found = folder.lstat()
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < MAKING_SECONDS:
                continue
            number = _lock(folder)
        except OSError:  # gone meanwhile, or no folder
            continue
        if number is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(number)


def _lock(folder: Path) -> int | None:
    """Lock a folder: the number of the open folder, None where another process has the lock or the
    disk knows none."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(number)
        return None
    return number


def files_named(data: Any) -> dict[str, bytes]:
    """The files of all code that the texts of plain data name, by path below one folder in which it
    is found again. Text that is no reference after all, and installed code, has none."""
    files: dict[str, bytes] = {}
    for text in dict.fromkeys(_texts(data)):
        reference = text.partition(";")[0]
        if not is_reference(reference):
            continue
        try:
            source = places.find(parse(reference))
        except CodeError:
            continue
        for name, content in ({} if source.installed else source.files).items():
            if files.setdefault(name, content) != content:
                raise UserError(
                    f"two files called {name} would be sent",
                    "give one of them another name, or put the code into a package",
                )
    return files


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping | list | tuple):
        for each in data.values() if isinstance(data, Mapping) else data:
            yield from _texts(each)


_unpacked: set[str] = set()
