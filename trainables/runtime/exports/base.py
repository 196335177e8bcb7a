"""What a format is: how a network becomes a file of it, and how that file is run here. Formats are
the other modules of this folder that register one."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bitfront.trainables.errors import UserError
from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from bitfront.trainables.runtime.exports.form import Source


# The extra for files of ONNX, and its packages.
EXTRA, ONNX = "deploy", ("onnx", "onnxruntime", "onnxscript")


class Format(ABC):
    """A kind of file. Its name is that of the option."""

    name: ClassVar[str]
    doc: ClassVar[str]
    """what it is, in a few words"""
    ending: ClassVar[str]
    """of the name of its file or folder, where none is given"""
    other_endings: ClassVar[bool] = True
    """whether what writes and reads it takes names that end otherwise"""
    folder: ClassVar[bool] = False
    """whether OUT is a folder"""
    beside: ClassVar[tuple[str, ...]] = ()
    """endings of further files, in place of the ending of the first"""
    extra: ClassVar[str] = ""
    """the extra of bitfront that it needs"""
    needs: ClassVar[tuple[str, ...]] = ()
    """the packages of that extra"""

    def check_installed(self) -> None:
        """Raise where a package is missing."""
        missing = [name for name in self.needs if find_spec(name) is None]
        if missing:
            raise UserError(
                f"--{self.name} needs {', '.join(missing)}", f"pip install 'bitfront[{self.extra}]'"
            )

    def check_name(self, path: Path) -> None:
        """Raise where nothing can be written under this name."""
        if not self.other_endings and path.suffix != self.ending:
            raise UserError(f"--{self.name} {path}: its name must end in {self.ending}")

    @abstractmethod
    def write(self, source: Source, path: Path) -> str:
        """Write the file, or into the folder; returns what there is to say about it."""

    def cannot_run(self) -> str | None:
        """Why the file cannot be run on this machine; None: it can."""
        return None

    @abstractmethod
    def running(self, path: Path) -> AbstractContextManager[Callable[[Tensor], Tensor]]:
        """A context with a function that computes the outputs for a batch by the file."""


FORMATS: Registry[Format] = Registry("format", package=__package__)


def target_of(name: str, file: Path, out: str | os.PathLike[str] = "") -> Path:
    """Where a format is written: as given, else beside the packed file under its name."""
    given = os.fspath(out)
    return Path(given) if given else file.with_name(f"{file.stem}{FORMATS.get(name).ending}")
