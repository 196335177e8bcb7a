"""One registry class for everything that has a name: methods, models, datasets, selectors,
samplers, costs, attacks, diagnostics. A duplicate name is an error, listing takes wildcards, a
wrong name gets a suggestion."""

from __future__ import annotations

import fnmatch
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, overload

from bitfront.trainables.errors import UnknownNameError, did_you_mean
from bitfront.trainables.own_code import is_reference, load_object, parse
from bitfront.trainables.own_code.entry_points import KINDS, reference_of
from bitfront.trainables.own_code.reference import unfinished

T = TypeVar("T")


def is_count(text: str) -> bool:
    """Whether the text is a whole number below 10^9 in ASCII digits (`isdigit` accepts ² too)."""
    return text.isascii() and text.isdigit() and len(text) < 10


class Registry(Generic[T]):
    """A mapping from names to items of one kind. At the first lookup all modules of `package` are
    imported, in which items register themselves; with `nested`, those of its sub-packages too. An
    item may have `aliases`, former names that are still accepted but not listed."""

    def __init__(
        self,
        kind: str,
        package: str | None = None,
        nested: bool = False,
        adopt: Callable[[Any, str], T] | None = None,
    ) -> None:
        """`adopt`: makes an item of an object of the user's own and the reference that names it;
        without it, only registered names are known."""
        self.kind = kind
        self._adopt = adopt
        self._adopted: dict[str, T] = {}
        self._package = package
        self._walk = pkgutil.walk_packages if nested else pkgutil.iter_modules
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
        """All items by name; imports the modules of the package first."""
        # Unset before the imports, since a module may look up an item while it is imported.
        package, self._package = self._package, None
        if package is not None:
            try:
                path = importlib.import_module(package).__path__
                for module in self._walk(path, f"{package}."):
                    importlib.import_module(module.name)
            except BaseException:
                self._package = package
                raise
        return self._items

    def get(self, name: str) -> T:
        """The item of that name or alias; an UnknownNameError with the nearest name for others."""
        found = self.find()
        known = self._aliases.get(name, name)
        if known in found:
            return found[known]
        reference = self.reference(name)
        if reference is not None:
            return self.adopted(reference)
        raise UnknownNameError(
            f"unknown {self.kind} '{name}', {did_you_mean(name, self._items)}",
            unfinished(name) if self.kind in KINDS else None,
        )

    def reference(self, name: str) -> str | None:
        """The reference to code that a name stands for: it is one itself, or an installed package
        declares it; None for registered and unknown names."""
        if name in self.find() or name in self._aliases or self._adopt is None:
            return None
        return name if is_reference(name) else reference_of(self.kind, name)

    def adopts(self, adopt: Callable[[Any, str], T]) -> Callable[[Any, str], T]:
        """A decorator for what the constructor calls `adopt`, in a module of the package."""
        self._adopt = adopt
        return adopt

    def adopted(self, reference: str) -> T:
        """The item made of the user's own object that a reference names, such as
        `my_net.py:MyNet`."""
        assert self._adopt is not None
        if reference not in self._adopted:
            made = self._adopt(load_object(reference), reference)
            if not parse(reference).digest:  # other code may have this name later
                return made
            self._adopted[reference] = made
        return self._adopted[reference]

    def names(self, pattern: str = "*") -> list[str]:
        """The names that match the pattern, sorted; aliases are not among them."""
        return sorted(fnmatch.filter(self.find(), pattern))

    def items(self) -> list[tuple[str, T]]:
        return sorted(self.find().items())

    def __contains__(self, name: object) -> bool:
        found = name in self.find() or name in self._aliases
        return found or (isinstance(name, str) and self.reference(name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.find()))

    def __len__(self) -> int:
        return len(self.find())
