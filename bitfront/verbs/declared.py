"""Names that installed packages declare for bitfront, in the listings of the catalog. Their code is
not imported for it."""

from __future__ import annotations

import fnmatch
import sys
from typing import Any

from bitfront.terminal.tables import filled
from bitfront.trainables.own_code import entry_points
from bitfront.trainables.registry import Registry


def declared_names(registry: Registry[Any], pattern: str) -> list[dict[str, str]]:
    """Name, package and code of what packages declare of the kind of a registry. A broken
    declaration, and one whose name is taken, is a warning on standard error."""
    named = entry_points.of_kind(registry.kind)
    taken = [each for each in named if registry.reference(each.name) is None]
    for sentence in (
        *entry_points.declared()[1],
        *(f"{e.package} declares '{e.kind}.{e.name}', but bitfront has a {e.name}" for e in taken),
    ):
        print(filled(f"warning: {sentence}"), file=sys.stderr, flush=True)
    return [
        {"name": each.name, "package": each.package, "code": each.reference}
        for each in named
        if each not in taken and fnmatch.fnmatch(each.name, pattern)
    ]


def declared_text(found: list[dict[str, str]]) -> str:
    """A line for every name."""
    return "\n".join(f"{e['name']}: of the package {e['package']} ({e['code']})" for e in found)
