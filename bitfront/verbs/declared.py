"""Names that installed packages declare for bitfront, in the listings of the catalog. Their code is
not imported for it."""

from __future__ import annotations

import fnmatch
import sys

from bitfront.terminal.tables import filled
from bitfront.trainables.own_code import entry_points


def declared_names(kind: str, pattern: str) -> list[dict[str, str]]:
    """Name, package and code of what packages declare of a kind. A broken declaration is a warning
    on standard error."""
    for sentence in entry_points.declared()[1]:
        print(filled(f"warning: {sentence}"), file=sys.stderr, flush=True)
    return [
        {"name": each.name, "package": each.package, "code": each.reference}
        for each in entry_points.of_kind(kind)
        if fnmatch.fnmatch(each.name, pattern)
    ]


def declared_text(found: list[dict[str, str]]) -> str:
    """A line for every name."""
    return "\n".join(f"{e['name']}: of the package {e['package']} ({e['code']})" for e in found)
