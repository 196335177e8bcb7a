"""Loads the object of a reference: the one place where code of the user's own is run. What goes
wrong in it is an error of one line with the user's file and line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from bitfront.trainables.errors import UserError, did_you_mean, first_line
from bitfront.trainables.own_code import places, trusted
from bitfront.trainables.own_code.reference import DIGITS, Reference, parse
from bitfront.trainables.own_code.sources import Source

# The loaded objects by reference and hash.
_objects: dict[tuple[str, str, str], Any] = {}


def load_object(text: str) -> Any:
    """The class or function that a reference names. Its code is run at the first use, if the user
    trusts it; a UserError otherwise, and where it fails."""
    reference = parse(text)
    source = places.find(reference)
    key = (source.sha256, source.main, reference.name)
    if key not in _objects:
        trusted.check(reference, source)
        _objects[key] = _loaded(reference, source)
    return _objects[key]


def origin(text: str) -> Source:
    """The files of a reference, found but not run."""
    return places.find(parse(text))


def where(source: Source, error: BaseException) -> str:
    """`file:line` of the innermost frame of an exception that is in the source; the main file where
    there is none."""
    files = {str(source.root / name) for name in source.files}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    if isinstance(error, SyntaxError) and error.filename in files:
        return f"{error.filename}:{error.lineno}"
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(source.path)


@contextmanager
def blamed(text: str, doing: str) -> Iterator[None]:
    """Turn an exception that the code of a reference raises inside into a UserError that names its
    file and line. `doing`: what was asked of it, `cannot be made: ` and so on."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        place = where(origin(text), error)
        raise UserError(f"{place}: {doing}: {first_line(error, typed=True)}") from error


def _loaded(reference: Reference, source: Source) -> Any:
    with blamed(str(reference), "an error when it is imported"):
        if reference.is_pickle:
            import cloudpickle

            return cloudpickle.loads(source.files[source.main])
        module = _module(reference, source)
    found: Any = module
    for part in reference.name.split("."):
        if not hasattr(found, part):
            known = [name for name in vars(module) if not name.startswith("_")]
            hint = did_you_mean(reference.name, known)
            raise UserError(f"{source.path} has no '{reference.name}', {hint}")
        found = getattr(found, part)
    return found


def _module(reference: Reference, source: Source) -> ModuleType:
    """The module of a reference. A file gets a module name of its own, so that it may be called
    like anything that is installed; modules it imports from its folder have their usual names."""
    _forget_others(source)
    if not reference.is_file:
        with _first_on_path(source.root):
            return importlib.import_module(reference.source)
    name = f"own_{source.path.stem}_{source.sha256[:DIGITS]}"
    spec = importlib.util.spec_from_file_location(name, source.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look for it there
    try:
        with _first_on_path(source.root):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _first_on_path(root: Path) -> Iterator[None]:
    """Inside, modules are looked for in `root` first; afterwards last, for imports inside functions
    that run later."""
    place = str(root)
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(place)
        if place not in sys.path:
            sys.path.append(place)


def _forget_others(source: Source) -> None:
    """Forget modules that were imported from an earlier state of the same files, or from other
    files of the same names in another folder of code."""
    if source.installed:
        return
    names = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in source.files
        if name.endswith(".py")
    }
    for name in names & set(sys.modules):
        if (source.sha256, name) not in _imported and name != "__main__":
            del sys.modules[name]
    _imported.update((source.sha256, name) for name in names)


# (hash of a source, module of it) that may be in `sys.modules`.
_imported: set[tuple[str, str]] = set()
