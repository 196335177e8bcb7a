"""Writes a network as files of several formats. Each file is run on examples beside torch before it
gets its name: one that predicts something else is an error and is not left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.files import discard
from bitfront.trainables.runtime.exports.base import FORMATS, Format
from bitfront.trainables.runtime.exports.description import Description
from bitfront.trainables.runtime.exports.examples import Examples
from bitfront.trainables.runtime.exports.form import Source

# Outputs that are no classes may differ by so much of the largest one.
TOLERANCE = 1e-3
# So many examples run at once.
CHUNK = 16
# Where a file predicts another class, torch is asked again so often, with inputs that differ by
# about the rounding of a float. A network that answers either class decides by rounding.
DRAWS, NOISE = 32, 1e-6


@dataclass(frozen=True)
class Deployed:
    """A file that was written, and how it compares with torch."""

    format: str
    path: Path
    bytes: int
    about: str
    examples: int
    """on how many it was run; 0: not at all"""
    difference: float
    """the largest difference of an output"""
    undecided: int = 0
    """examples of another class, which rounding decides in torch too"""
    unchecked: str = ""
    """why it was not run"""

    def describe(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "format": self.format,
            "path": str(self.path),
            "bytes": self.bytes,
            "about": self.about,
            "examples": self.examples,
            "largest_difference": self.difference if self.examples else None,
            "undecided": self.undecided,
            "unchecked": self.unchecked or None,
        }


def deploy(
    network: nn.Module,
    description: Description,
    targets: Mapping[str, Path],
    examples: Examples,
    force: bool = False,
    done: Callable[[Deployed], object] = lambda _: None,
) -> list[Deployed]:
    """Write the network as every format of `targets`; `done` is called with each file. `force`:
    replace what is there."""
    formats = [FORMATS.get(name) for name in targets]
    for each, path in zip(formats, targets.values(), strict=True):
        each.check_installed()
        each.check_name(path)
        if not force:
            _refuse_existing(each, path)
    source = Source(network, description, _pair(examples.x))
    found = []
    with torch.no_grad():
        if not isinstance(network(examples.x[:1]), Tensor):
            raise UserError("a network that returns no tensor has no file")
        wanted = _in_chunks(network, examples.x)
        if not bool(wanted.isfinite().all()):
            raise UserError("the network computes infinite outputs, or none that are numbers")
        for each, path in zip(formats, targets.values(), strict=True):
            found.append(_deployed(each, source, path, examples.x, wanted))
            done(found[-1])
    return found


def _pair(x: Tensor) -> Tensor:
    """Two examples: programs are traced with a batch that is not one."""
    return x[:2] if len(x) > 1 else torch.cat([x, x])


def _deployed(format_: Format, source: Source, path: Path, x: Tensor, wanted: Tensor) -> Deployed:
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".deploy-", dir=path.parent) as folder:
        part = Path(folder) / path.name
        if format_.folder:
            part.mkdir()
        about = format_.write(source, part)
        unchecked = format_.cannot_run()
        difference, undecided = 0.0, 0
        if unchecked is None:
            with format_.running(part) as run:
                found = _in_chunks(run, x)
            difference, undecided = _compared(format_, source, x, wanted, found)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        _into_place(Path(folder), path, format_.folder)
    count = 0 if unchecked else len(x)
    checked = (count, difference, undecided, unchecked or "")
    return Deployed(format_.name, path, size, about, *checked)


def _in_chunks(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The outputs for the examples, computed in batches, the first of which has one only."""
    return torch.cat([run(part) for part in (x[:1], *x[1:].split(CHUNK)) if len(part)])


def _compared(
    format_: Format, source: Source, x: Tensor, wanted: Tensor, found: Tensor
) -> tuple[float, int]:
    """(the largest difference of an output, how many classes rounding decides); a UserError where
    the file predicts something else."""
    if found.shape != wanted.shape:
        raise UserError(
            f"--{format_.name}: outputs {tuple(found.shape)}, not {tuple(wanted.shape)}"
        )
    difference = float((found - wanted).abs().max())
    apart = f"the largest difference of an output is {difference:.3g}; the file was deleted"
    if source.description.kind in ("classification", "continual") and wanted.dim() == 2:
        others = (found.argmax(1) != wanted.argmax(1)).nonzero().flatten().tolist()
        wrong = [i for i in others if not _by_rounding(source.network, x[i], found[i].argmax())]
        if wrong or not difference < float("inf"):
            raise UserError(
                f"--{format_.name}: the file predicts another class for {len(wrong)} of "
                f"{len(wanted)} examples; {apart}"
            )
        return difference, len(others)
    if not difference <= TOLERANCE * float(wanted.abs().max()):
        raise UserError(f"--{format_.name}: the file computes something else; {apart}")
    return difference, 0


def _by_rounding(network: nn.Module, example: Tensor, other: Tensor) -> bool:
    """Whether torch too predicts the other class for inputs that differ by rounding."""
    if not example.is_floating_point():
        return False
    noise = torch.randn((DRAWS, *example.shape), generator=torch.Generator().manual_seed(0))
    outputs: Tensor = network(example * (1 + NOISE * noise))
    return bool((outputs.argmax(1) == other).any())


def _refuse_existing(format_: Format, path: Path) -> None:
    taken = [f for f in (path, *_further(format_, path)) if f.exists() or f.is_symlink()]
    empty = format_.folder and path.is_dir() and not any(path.iterdir())
    if taken and not empty:
        raise UserError(f"{taken[0]} is there; it is not overwritten", "another name, or --force")


def _further(format_: Format, path: Path) -> list[Path]:
    return [path.with_suffix(ending) for ending in format_.beside]


def _into_place(written: Path, path: Path, folder: bool) -> None:
    """Move what was written to its place."""
    if not folder:
        for file in written.iterdir():
            file.replace(path.parent / file.name)
        return
    if path.is_symlink() or path.is_file():
        discard(path)
    path.mkdir(exist_ok=True)
    for file in (written / path.name).iterdir():
        file.replace(path / file.name)
