"""Files that all nodes can access: on a shared path, or in an object store by its URL (s3://, gs://
and others through pyarrow, all else through fsspec). Imports only the standard library, pyarrow and
fsspec, so that it also runs on a node without bitfront, to check it."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

# The names of files that this module writes: a checkpoint, the probe of `try_out`, or an unfinished
# part of either.
OURS = re.compile(r"\.?(state|file)\b")


def is_url(place: str) -> bool:
    """Whether a place is not a folder of this machine."""
    return "://" in place


def join(place: str, *parts: str) -> str:
    """The path of something below a place."""
    return "/".join([place.rstrip("/"), *parts])


def _file_system(place: str) -> tuple[Any, str]:
    """(pyarrow's file system of the place, the path in it)."""
    from pyarrow import ArrowInvalid, fs

    if not is_url(place):
        return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(place))
    try:
        system, path = fs.FileSystem.from_uri(place)
    except ArrowInvalid:
        import fsspec

        other, path = fsspec.core.url_to_fs(place)
        system = fs.PyFileSystem(fs.FSSpecHandler(other))
    return system, path


def write(place: str, content: bytes) -> None:
    """Write a file atomically: object stores show it when it is complete; on a disk it is written
    under another name and moved."""
    system, path = _file_system(place)
    system.create_dir(str(Path(path).parent), recursive=True)
    part = path if is_url(place) and not place.startswith("file:") else f"{path}.{os.getpid()}.part"
    with system.open_output_stream(part) as out:
        out.write(content)
    if part != path:
        system.move(part, path)


def read(place: str) -> bytes | None:
    """The content of the file; None where there is no such file."""
    system, path = _file_system(place)
    try:
        with system.open_input_stream(path) as source:
            return bytes(source.read())
    except FileNotFoundError:
        return None


def try_out(place: str) -> None:
    """Write, read and delete a file at the place and look for a missing one; errors are raised."""
    folder = join(place, f"bitfront-{os.getpid()}.probe")
    write(join(folder, "file"), b"bitfront")
    if read(join(folder, "file")) != b"bitfront":
        raise OSError("what was written is not there")
    read(join(folder, "none"))  # S3 refuses those who may not list a bucket
    forget(folder)


def forget(place: str) -> None:
    """Delete a folder of checkpoints, if it exists. On a disk, files with other names than ours and
    the targets of links are not deleted."""
    system, path = _file_system(place)
    if system.type_name == "local":
        forget_here(Path(path))
        return
    with contextlib.suppress(FileNotFoundError):
        system.delete_dir(path)


def forget_here(folder: Path) -> None:
    """Delete a folder of checkpoints on this disk, without importing pyarrow."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            forget_here(path)
        elif OURS.match(path.name):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()
