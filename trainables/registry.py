"""One registry class for everything that has a name: methods, models, datasets, selectors,
samplers, costs, attacks, diagnostics. A duplicate name is an error, listing takes wildcards, a
wrong name gets a suggestion."""

from __future__ import annotations

import fnmatch
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, overload

from bitfront.trainables.errors import UnknownNameError, did_you_mean

T = TypeVar("T")


def is_count(text: str) -> bool:
    """Whether the text is a whole number below 10^9 in ASCII digits (`isdigit` accepts ² too)."""
    return text.isascii() and text.isdigit() and len(text) < 10


class Registry(Generic[T]):
    """Names to items of one kind. The modules of `package`, in which items register themselves, are
    found and imported at the first lookup: a new file there is enough. An item may carry `aliases`,
    names of before that are still accepted and never listed."""

    def __init__(self, kind: str, package: str | None = None, nested: bool = False) -> None:
        self.kind = kind
        self._package = package
        self._nested = nested  # whether folders of the package hold items too
        self._items: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    @overload
    def register(self, item: str) -> Callable[[T], T]: ...

    @overload
    def register(self, item: T) -> T: ...

    def register(self, item: str | T) -> T | Callable[[T], T]:
        """Add an item under the name it carries, or under the one given; usable as a decorator."""
        if not isinstance(item, str):
            self.add(item.name, item)  # type: ignore[attr-defined]
            return item
        name = item

        def named(item: T) -> T:
            self.add(name, item)
            return item

        return named

    def add(self, name: str, item: T) -> None:
        for each in (name, *getattr(item, "aliases", ())):
            if each in self._items or each in self._aliases:
                raise ValueError(f"{self.kind} '{each}' is registered twice")
            if each != name:
                self._aliases[each] = name
        self._items[name] = item

    def find(self) -> dict[str, T]:
        """All items by name, once the modules of the family are imported."""
        # Unset first: a module may look something up while it is imported.
        package, self._package = self._package, None
        if package is not None:
            try:
                path = importlib.import_module(package).__path__
                listed = pkgutil.walk_packages if self._nested else pkgutil.iter_modules
                for module in listed(path, f"{package}."):
                    importlib.import_module(module.name)
            except BaseException:
                self._package = package
                raise
        return self._items

    def get(self, name: str) -> T:
        """The item of that name or alias, or an error with the nearest name."""
        try:
            found = self.find()
            return found[self._aliases.get(name, name)]
        except KeyError:
            hint = did_you_mean(name, self._items)
            raise UnknownNameError(f"unknown {self.kind} '{name}', {hint}") from None

    def names(self, pattern: str = "*") -> list[str]:
        """The names that match the pattern, sorted; aliases are not among them."""
        return sorted(fnmatch.filter(self.find(), pattern))

    def items(self) -> list[tuple[str, T]]:
        return sorted(self.find().items())

    def __contains__(self, name: object) -> bool:
        return name in self.find() or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.find()))

    def __len__(self) -> int:
        return len(self.find())
