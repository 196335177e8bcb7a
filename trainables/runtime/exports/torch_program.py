"""A program of torch.export, for C++ (AOTInductor), ExecuTorch and processes without bitfront."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bitfront.trainables.runtime.exports.base import FORMATS, Format

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from bitfront.trainables.runtime.exports.form import Source

EXTRA_FILE = "bitfront.json"


class TorchProgram(Format):
    """`--torch-export`."""

    name = "torch-export"
    doc = "a program of torch.export; weights in float32, equal outputs"
    ending = ".pt2"
    other_endings = False

    def write(self, source: Source, path: Path) -> str:
        import torch

        form = _form()
        program = form.traced(source.network, source.example, plain=True)
        with form.quiet():
            extra = {EXTRA_FILE: source.description.as_json()}
            torch.export.save(program, path, extra_files=extra)
        return "batches of any size" if form.takes_any_batch(program) else "batches of 1"

    @contextmanager
    def running(self, path: Path) -> Iterator[Callable[[Tensor], Tensor]]:
        import torch

        form = _form()
        with form.quiet():
            program = torch.export.load(path)
            run = program.module()
        if form.takes_any_batch(program):
            yield run
        else:
            yield lambda x: torch.cat([run(part) for part in x.split(1)])


def _form() -> Any:
    from bitfront.trainables.runtime.exports import form

    return form


FORMATS.register(TorchProgram())
