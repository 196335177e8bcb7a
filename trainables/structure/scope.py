"""Which of the layers of a network a plan decides: `task.binarize` and `task.keep_full`."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from bitfront.trainables.errors import UnknownNameError, did_you_mean, quoted

# What a layer is for: `roles` finds it.
FIRST, LAST, SHORTCUT, BODY = "first", "last", "shortcut", "body"

# Words of `task.binarize`; anything else is a list of names and patterns.
SCOPES = ("body", "all")
Scope = str | Sequence[str]


def matches(name: str, pattern: str) -> bool:
    """Whether a layer has this name, is inside the module of this name, or matches the pattern."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern)


def matching(names: Iterable[str], patterns: Sequence[str], key: str) -> set[str]:
    """The names that match one of the patterns; an error of `key` for a pattern that none does."""
    known = list(names)
    found: set[str] = set()
    for pattern in patterns:
        hits = {name for name in known if matches(name, pattern)}
        if not hits:
            raise UnknownNameError(
                f"{key}: no layer is called {quoted(pattern)}, {did_you_mean(pattern, known)}"
            )
        found |= hits
    return found
