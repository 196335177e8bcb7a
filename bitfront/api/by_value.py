"""Classes and functions that a user passes in Python, as references that workers can load: by file
or module where they have one, else pickled by value into the home of the searches."""

from __future__ import annotations

import hashlib
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from bitfront.search.ledger.folder import code_folder, data_folder
from bitfront.trainables.data.own.array_files import read_parts
from bitfront.trainables.data.own.arrays import write_arrays
from bitfront.trainables.data.own.opened import SETTINGS
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.files import write_atomically
from bitfront.trainables.own_code import look_in, trust
from bitfront.trainables.own_code.reference import DIGITS, PICKLE, Reference
from bitfront.trainables.own_code.sources import read_source


def reference_to(thing: str | Callable[..., Any], key: str, root: Path) -> str:
    """The name by which a search knows `thing`: a name as it is, a class or function by its
    reference. `key`: the argument it was given as; `root`: the home of the searches."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, partial):
        raise UserError(
            f"{key}: functools.partial has no name",
            f"give its arguments beside it, {key}={{'name': {_named(thing.func)}, 'width': 8}}, or "
            f"define a function that calls it",
        )
    if not callable(thing) or not hasattr(thing, "__qualname__"):
        raise UserError(
            f"{key}: {type(thing).__name__} is neither a name nor a class or function",
            f"every trial makes its own: pass the class, or a function that returns one, "
            f"{key}=lambda: {type(thing).__name__}(...)",
        )
    return importable(thing) or _by_value(thing, key, root)


def _named(thing: Any) -> str:
    return str(getattr(thing, "__name__", "MyNet"))


def dataset_of(data: Any, root: Path) -> str:
    """The name by which a search knows data: a name as it is, a function that loads them by its
    reference, examples by the file they are written to in the home."""
    if isinstance(data, str) or (callable(data) and hasattr(data, "__qualname__")):
        return reference_to(data, "data", root)
    settings = {}
    if isinstance(data, Mapping):
        settings = {key: data[key] for key in SETTINGS if key in data}
        data = {key: part for key, part in data.items() if key not in settings}
    name = write_arrays(data, data_folder(root))
    if not settings:
        return name

    def load() -> dict[str, Any]:
        return {**read_parts(name), **settings}

    return _by_value(load, "data", root, _settings_text(name, settings))


def _settings_text(name: str, settings: Mapping[str, Any]) -> str | None:
    """A text that changes with the file of arrays and with the metric and loss beside it; None
    where their source is not known."""
    texts = [name]
    for key, value in settings.items():
        for part, item in value.items() if isinstance(value, Mapping) else [("", value)]:
            text = _source(item) if callable(item) else repr(item)
            if text is None:
                return None
            texts.append(f"{key} {part}: {text}")
    return "\n".join(texts)


def importable(thing: Callable[..., Any]) -> str | None:
    """The reference of a class or function at the top level of a module that another process can
    import; None for what is defined in a notebook, in a script that runs, or inside a function."""
    name, module = thing.__qualname__, sys.modules.get(thing.__module__ or "")
    if module is None or thing.__module__ == "__main__" or not name.isidentifier():
        return None
    found = getattr(module, name, None)
    if found is not thing and not _same_code(found, thing):
        return None
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(tuple(importlib.machinery.SOURCE_SUFFIXES)):
        return None
    above = thing.__module__.count(".") + (Path(file).name == "__init__.py")
    look_in(Path(file).resolve().parents[above])
    return f"{thing.__module__}:{name}"


def _same_code(one: Any, other: Any) -> bool:
    """Whether two classes or functions of one name have the same code: a search imports a module
    anew, from the content that it hashed."""
    return type(one) is type(other) and _codes(one) == _codes(other)


def _codes(thing: Any) -> dict[str, Any]:
    functions = vars(thing).items() if isinstance(thing, type) else [("", thing)]
    return {name: f.__code__ for name, f in functions if hasattr(f, "__code__")}


def _by_value(thing: Callable[..., Any], key: str, root: Path, known: str | None = None) -> str:
    """The reference of an object that is pickled by value and kept in the home. Where the same
    source text (`known`, or that of its code) was kept before, that pickle is used: the bytes of
    two pickles differ although the code is the same."""
    import cloudpickle

    name = thing.__name__ if thing.__name__.isidentifier() else "made"
    text = known or _source(thing)
    folder = code_folder(root)
    kept = _kept(folder, name, text)
    if kept is None:
        try:
            content: bytes = cloudpickle.dumps(thing)
        except Exception as error:  # pickling calls code of every object it meets
            raise UserError(
                f"{key}: {name} cannot be sent to workers: {first_line(error, typed=True)}",
                "define it without what is open or running here, or in a file: "
                f"{key}='my_code.py:{name}'",
            ) from None
        kept = folder / _digest(name, content)[:DIGITS] / f"{name}{PICKLE}"
        write_atomically(kept, content)
        if text is not None:
            write_atomically(kept.with_suffix(".txt"), text)
    reference = Reference(kept.name, name)
    source = read_source(reference, kept)
    trust(source.sha256)
    look_in(folder)
    return str(reference.with_digest(source.sha256))


def _digest(name: str, content: bytes) -> str:
    return hashlib.sha256(f"{name}{PICKLE} {len(content)}\n".encode() + content).hexdigest()


def _source(thing: Callable[..., Any]) -> str | None:
    """The source text of an object and of everything it uses of the module it is defined in; None
    where that is not known."""
    texts: dict[str, str] = {}
    waiting = [thing]
    while waiting:
        made = waiting.pop()
        try:
            texts[made.__qualname__] = inspect.getsource(made)
        except (OSError, TypeError):
            return None
        if getattr(made, "__closure__", None):
            return None  # the text does not say with which values it was made
        around = vars(sys.modules[made.__module__])
        for name in sorted(_names(made) & set(around)):
            used = around[name]
            if isinstance(used, bool | int | float | str | None):
                texts[name] = repr(used)
            elif isinstance(used, ModuleType):
                texts[name] = used.__name__
            elif getattr(used, "__module__", None) != made.__module__:
                texts[name] = f"{getattr(used, '__module__', '')}.{name}"
            elif inspect.isfunction(used) or inspect.isclass(used):
                if used.__qualname__ not in texts:
                    waiting.append(used)
            else:
                return None
    return "\n".join(f"# {name}\n{texts[name]}" for name in sorted(texts))


def _names(made: Any) -> set[str]:
    """The names that the code of a function, or of the methods and bases of a class, uses."""
    if inspect.isclass(made):
        found = {base.__name__ for base in made.__bases__}
        for member in vars(made).values():
            function = getattr(member, "__func__", member)
            found |= _names(function) if inspect.isfunction(function) else set()
        return found
    codes, found = [made.__code__], set()
    while codes:
        code = codes.pop()
        found |= set(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    return found


def _kept(folder: Path, name: str, text: str | None) -> Path | None:
    """The pickle that was kept of the same source text."""
    if text is None or not folder.is_dir():
        return None
    for file in sorted(folder.glob(f"*/{name}.txt")):
        pickle = file.with_suffix(PICKLE)
        if pickle.is_file() and file.read_text(encoding="utf-8") == text:
            return pickle
    return None
