"""Plain C99 for microcontrollers: no allocation, no library but math.h, binary layers on packed
bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bitfront.trainables.runtime.exports.base import FORMATS, Format

if TYPE_CHECKING:
    from torch import Tensor

    from bitfront.trainables.runtime.exports.form import Source


class CSource(Format):
    """`--c`."""

    name = "c"
    doc = "a header and plain C99 for microcontrollers, one bit per binary weight"
    ending = "-c"
    folder = True

    def write(self, source: Source, path: Path) -> str:
        about: str = _writing().written(source, path)
        return about

    def cannot_run(self) -> str | None:
        found = _writing().compiler()
        return None if found else "no C compiler here (pip install ziglang brings one)"

    @contextmanager
    def running(self, path: Path) -> Iterator[Callable[[Tensor], Tensor]]:
        writing = _writing()
        with TemporaryDirectory(prefix="bitfront-c-") as folder:
            program = writing.compiled(path, Path(folder))
            yield lambda x: writing.run(program, x)


def _writing() -> Any:
    from bitfront.trainables.runtime.exports.c import writing

    return writing


FORMATS.register(CSource())
