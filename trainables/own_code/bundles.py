"""Code on its way to another machine: the files of references as bytes, unpacked there into a
folder of their own. Code that is installed is not sent: every node has its own."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import places, trusted
from bitfront.trainables.own_code.reference import parse


@dataclass(frozen=True)
class Bundle:
    """The code of several references: (hash, {path: content}) of each source that is sent."""

    sources: tuple[tuple[str, dict[str, bytes]], ...]

    def __bool__(self) -> bool:
        return bool(self.sources)


def bundle(references: Iterable[str]) -> Bundle:
    """The code of these references, each source once."""
    found = {}
    for text in references:
        reference = parse(text)
        source = places.find(reference)
        if not source.installed:
            trusted.check(reference, source)
            found[source.sha256] = dict(source.files)
    return Bundle(tuple(found.items()))


def unpack(sent: Bundle) -> None:
    """Write the code of a bundle to a temporary folder of this process, look for code there, and
    trust it: the driver, whose user trusts it, has sent it."""
    for sha256, files in sent.sources:
        if sha256 in _unpacked:
            continue
        folder = Path(tempfile.mkdtemp(prefix="bitfront-code-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, content in files.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise UserError(f"{name}: code that was sent names a file outside its folder")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        places.look_in(folder)
        trusted.trust_now(sha256)
        _unpacked.add(sha256)


_unpacked: set[str] = set()
