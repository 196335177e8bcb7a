"""One registry class for everything that has a name: methods, models, datasets, selectors,
samplers. A duplicate name is an error, listing takes wildcards, a wrong name gets a suggestion."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class UserError(Exception):
    """A mistake of the person at the keyboard: shown as one line and a hint, exit code 2."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class UnknownNameError(UserError):
    """A name that no registry entry, key or layer has."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message: the nearest valid word, or the list when nothing is near."""
    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{near[0]}'?"
    if not names:
        return "there are none"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"one of: {shown}"


class Registry(Generic[T]):
    """Names to things of one kind, filled by decorators at import time."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(item: T) -> T:
            self.add(name, item)
            return item

        return add

    def add(self, name: str, item: T) -> None:
        if name in self._items:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self._items[name] = item

    def get(self, name: str) -> T:
        try:
            return self._items[name]
        except KeyError:
            hint = did_you_mean(name, self._items)
            raise UnknownNameError(f"unknown {self.kind} '{name}', {hint}") from None

    def names(self, pattern: str = "*") -> list[str]:
        return sorted(fnmatch.filter(self._items, pattern))

    def items(self) -> list[tuple[str, T]]:
        return sorted(self._items.items())

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))

    def __len__(self) -> int:
        return len(self._items)
