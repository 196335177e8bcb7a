"""Mistakes of the person at the keyboard: one line and a hint, never a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from bitfront.trainables.registry import LONGEST_QUOTE, bounded


class UserError(Exception):
    """A mistake of the person at the keyboard: shown as one line and a hint, exit code 2."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        message = bounded(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else bounded(hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class UnknownNameError(UserError):
    """A name that no registry entry, key or layer has."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message: the nearest valid word, or the list when nothing is near."""
    names = sorted(set(known))
    # Nothing is near a word of thousands of letters, and finding that out takes seconds.
    near = difflib.get_close_matches(word[:LONGEST_QUOTE], names, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{near[0]}'?"
    if not names:
        return "there are none"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"one of: {shown}"
