"""Errors that are shown to the user as one line and a hint, without a traceback, and functions that
format their messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Messages quote input; of a long quotation only both ends are shown.
LONGEST_LINE = 600
MOST_LINES = 40
LONGEST_QUOTE = 120


class UserError(Exception):
    """A mistake of the user: shown as one line and a hint, exit code 2."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        message = bounded(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else bounded(hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return f"error: {self}".split("\n")


class UnknownNameError(UserError):
    """A name that no registry entry, key or layer has."""


class MissingDataError(UserError):
    """Data that are not on this machine."""


class CodeError(UserError):
    """Code of the user's own that is not there, has changed, or is not trusted."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message: the nearest valid word, whatever its case, or the list
    when nothing is near."""
    names = sorted(set(known))
    # Cut off, since matching a word of thousands of letters takes seconds.
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word[:LONGEST_QUOTE].lower(), lower, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{lower[near[0]]}'?"
    if not names:
        return "there are none"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"one of: {shown}"


def first_line(error: BaseException, typed: bool = False) -> str:
    """The first line of an error's message, or the name of its type where the message is empty.
    With `typed` the name of the type stands before the line."""
    lines = str(error).strip().splitlines()
    name = type(error).__name__
    if not lines:
        return name
    return f"{name}: {lines[0]}" if typed else lines[0]


def bounded(message: str) -> str:
    """The message with long lines shortened, at most MOST_LINES of them, and characters that cannot
    be encoded in UTF-8 escaped."""
    lines = message.splitlines() or [""]
    shown = [_without_middle(line, LONGEST_LINE) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append(f"... and {len(lines) - MOST_LINES} lines more")
    return "\n".join(shown).encode("utf-8", "backslashreplace").decode("utf-8")


def _without_middle(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = most // 3
    head = most - tail
    return f"{text[:head]} ... ({len(text) - most:,} characters left out) ... {text[-tail:]}"


def quoted(value: object) -> str:
    """The value as messages quote it: shortened, and a text in quotes."""
    text = value if isinstance(value, str) else _written(value)
    short = _without_middle(text, LONGEST_QUOTE)
    return repr(short) if isinstance(value, str) else short


def _written(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list in itself
        return f"a very large {type(value).__name__}"
