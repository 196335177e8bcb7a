"""One registry class for everything that has a name: methods, models, datasets, selectors,
samplers. A duplicate name is an error, listing takes wildcards, a wrong name gets a suggestion."""

from __future__ import annotations

import fnmatch
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, overload

from bitfront.trainables.errors import UnknownNameError, did_you_mean

T = TypeVar("T")


def is_count(text: str) -> bool:
    """Whether the text is a whole number of ours: `isdigit` takes ² and thousands of digits too."""
    return text.isascii() and text.isdigit() and len(text) < 10


class Registry(Generic[T]):
    """Names to things of one kind. The modules of `package`, where the things register themselves,
    are found and imported when something is first looked up: a new file there is enough."""

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self._package = package
        self._items: dict[str, T] = {}

    @overload
    def register(self, item: str) -> Callable[[T], T]: ...

    @overload
    def register(self, item: T) -> T: ...

    def register(self, item: str | T) -> T | Callable[[T], T]:
        """A decorator: the item goes by the name it carries, or by the one given."""
        if not isinstance(item, str):
            self.add(item.name, item)  # type: ignore[attr-defined]
            return item
        name = item

        def named(item: T) -> T:
            self.add(name, item)
            return item

        return named

    def add(self, name: str, item: T) -> None:
        if name in self._items:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self._items[name] = item

    def find(self) -> dict[str, T]:
        """All items, the modules of the family imported."""
        package, self._package = self._package, None  # a module may ask while it is imported
        if package is not None:
            try:
                path = importlib.import_module(package).__path__
                for module in pkgutil.walk_packages(path, f"{package}."):
                    importlib.import_module(module.name)
            except BaseException:
                self._package = package
                raise
        return self._items

    def get(self, name: str) -> T:
        try:
            return self.find()[name]
        except KeyError:
            hint = did_you_mean(name, self._items)
            raise UnknownNameError(f"unknown {self.kind} '{name}', {hint}") from None

    def names(self, pattern: str = "*") -> list[str]:
        return sorted(fnmatch.filter(self.find(), pattern))

    def items(self) -> list[tuple[str, T]]:
        return sorted(self.find().items())

    def __contains__(self, name: object) -> bool:
        return name in self.find()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.find()))

    def __len__(self) -> int:
        return len(self.find())
