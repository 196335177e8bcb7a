"""Names that installed packages declare in `[project.entry-points."bitfront"]`: `method.soft =
"their_package.methods:SoftSign"` makes `soft` a name of a method. They are read from the packages'
metadata; nothing is imported before a name is used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bitfront.trainables.own_code.reference import is_reference, parse
from bitfront.trainables.own_code.sources import module_file

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "bitfront"
KINDS = ("model", "dataset", "method", "selector", "sampler", "metric", "cost")


@dataclass(frozen=True)
class Named:
    """A name that a package declares: `kind` of thing, `reference` to its code."""

    kind: str
    name: str
    reference: str
    package: str


@cache
def declared() -> tuple[tuple[Named, ...], tuple[str, ...]]:
    """(the names that installed packages declare, a sentence for each that is broken)."""
    # Importing it takes a fifth of the time of --help.
    from importlib.metadata import entry_points

    return read(entry_points(group=GROUP))


def read(points: Iterable[EntryPoint]) -> tuple[tuple[Named, ...], tuple[str, ...]]:
    """(names, sentences about the broken ones) of these entry points."""
    found: dict[tuple[str, str], Named] = {}
    broken = []
    for point in points:
        package = point.dist.name if point.dist is not None else "a package"
        kind, _, name = point.name.partition(".")
        said = f"{package} declares '{point.name}' for bitfront"
        if kind not in KINDS or not name:
            broken.append(f"{said}: names are KIND.NAME, with one of {', '.join(KINDS)}")
        elif not is_reference(point.value) or parse(point.value).is_file:
            broken.append(f"{said}, which names no code: {point.value}")
        elif module_file(parse(point.value).source, ()) is None:
            broken.append(f"{said}, but there is no module {parse(point.value).source}")
        elif (kind, name) in found and found[kind, name].reference != point.value:
            broken.append(f"{said}, as {found[kind, name].package} does, whose is taken")
        else:
            found[kind, name] = Named(kind, name, point.value, package)
    return tuple(found.values()), tuple(broken)


def of_kind(kind: str) -> list[Named]:
    """The names of one kind of thing, sorted."""
    return sorted((each for each in declared()[0] if each.kind == kind), key=lambda e: e.name)


def reference_of(kind: str, name: str) -> str | None:
    """The reference that a package declares under this name; None where none does."""
    return next((each.reference for each in of_kind(kind) if each.name == name), None)
