"""`bf.deploy` and `net.deploy`: a network as files that run elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bitfront.trainables import packed
from bitfront.trainables.errors import UnknownNameError, UserError, did_you_mean
from bitfront.trainables.own_code import look_in
from bitfront.trainables.own_code.trusted import trusting
from bitfront.trainables.runtime.exports import deployment
from bitfront.trainables.runtime.exports.base import FORMATS
from bitfront.trainables.runtime.exports.deployment import Deployed
from bitfront.trainables.runtime.exports.description import Description, describe
from bitfront.trainables.runtime.exports.examples import Examples, examples_for
from bitfront.trainables.task import TrialSpec

Out = str | os.PathLike[str]


@dataclass(frozen=True)
class Opened:
    """A network that is deployed, and the examples its files are compared on."""

    network: nn.Module
    description: Description
    examples: Examples

    @classmethod
    def of(
        cls, file: Path, examples: int, data_dir: str | None = None, model: nn.Module | None = None
    ) -> Opened:
        """The network of a packed file; `model`: as of `bf.load`."""
        look_in(file.absolute().parent)
        return cls.made(*packed.load(file, model), examples, data_dir)

    @classmethod
    def made(
        cls,
        network: nn.Module,
        spec: TrialSpec,
        notes: Mapping[str, Any],
        examples: int,
        data_dir: str | None = None,
    ) -> Opened:
        """A network that was loaded. Class names and examples are looked for in `data_dir`."""
        about = describe(spec, notes, data_dir)
        return cls(network, about, examples_for(spec.task, examples, data_dir))

    def deploy(
        self,
        targets: Mapping[str, Path],
        force: bool = False,
        done: Callable[[Deployed], object] = lambda _: None,
    ) -> list[Deployed]:
        """Write it as every format of `targets`; `done` is called with each file."""
        about = (self.description, targets, self.examples)
        return deployment.deploy(self.network, *about, force, done)

    def describe(self) -> dict[str, Any]:
        """The examples, in machine-readable form."""
        return {"examples": self.examples.what, "why": self.examples.why or None}


def deploy(
    path: Out,
    examples: int = 100,
    data_dir: Out | None = None,
    force: bool = False,
    trust: bool = False,
    model: nn.Module | None = None,
    **files: Out,
) -> list[Deployed]:
    """Write a packed network as files that run elsewhere, `onnx="net.onnx"`, `c="net-c"`; the names
    are those of the options of `bitfront deploy`. Each file is compared with torch on so many
    `examples` of the validation data (looked for in `data_dir`), random ones where there are none.
    `force`: replace files; `trust` and `model`: as of `bf.load`."""
    targets = targets_of(files)
    where = None if data_dir is None else os.fspath(data_dir)
    with trusting(trust):
        opened = Opened.of(Path(path), examples, where, model)
    return opened.deploy(targets, force)


def targets_of(files: Mapping[str, Out]) -> dict[str, Path]:
    """The files by the names of their formats, of which an argument has no hyphens."""
    known = {name.replace("-", "_"): name for name in FORMATS.names()}
    if not files:
        raise UserError("deploy: which file?", f'one of {", ".join(known)}: onnx="net.onnx"')
    for name in files:
        if name not in known:
            raise UnknownNameError(f"deploy: unknown format '{name}', {did_you_mean(name, known)}")
    return {known[name]: Path(out) for name, out in files.items()}
