"""Loads the object of a reference: the one place where code of the user's own is run. What goes
wrong in it is an error of one line with the user's file and line."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from bitfront.trainables.errors import UserError, did_you_mean, first_line
from bitfront.trainables.own_code import places, trusted
from bitfront.trainables.own_code.reference import DIGITS, MODULE, Reference, parse, shown
from bitfront.trainables.own_code.sources import Source, is_installed

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


@contextmanager
def about(text: str) -> Iterator[None]:
    """Let a UserError that is raised inside begin with the reference it is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{shown(text)}: {error.message}", error.hint) from error


def _loaded(reference: Reference, source: Source) -> Any:
    try:
        with blamed(str(reference), "an error when it is imported"):
            if reference.is_pickle:
                import cloudpickle

                return cloudpickle.loads(source.files[source.main])
            module = _module(reference, source)
    except UserError as error:
        if error.hint is None and isinstance(error.__cause__, ModuleNotFoundError):
            missing = error.__cause__.name
            hint = f"install {missing} beside bitfront, or put its file beside {source.path.name}"
            raise UserError(error.message, hint) from error
        if "attempted relative import" in error.message:
            hint = _relative_hint(reference, source.path)
            raise UserError(error.message, hint) from error
        whole = None if reference.is_pickle else f"to see all of it: python {source.path}"
        raise UserError(error.message, error.hint or whole) from error
    found: Any = module
    for part in reference.name.split("."):
        if not hasattr(found, part):
            known = [name for name in vars(module) if not name.startswith("_")]
            hint = did_you_mean(reference.name, known)
            raise UserError(f"{source.path} has no '{reference.name}', {hint}")
        found = getattr(found, part)
    return found


def _relative_hint(reference: Reference, path: Path) -> str:
    """How code with relative imports is named: as a module of its package."""
    parts, above = [path.stem], path.parent
    while (above / "__init__.py").is_file():
        parts, above = [above.name, *parts], above.parent
    if len(parts) == 1:
        return f"import the files beside {path.name} without the dot, or put them into a package"
    return f"name it as a module of its package: {'.'.join(parts)}:{reference.name}"


def _module(reference: Reference, source: Source) -> ModuleType:
    """The module of a reference. A file gets a module name of its own, so that it may be called
    like anything that is installed; modules it imports from its folder have their usual names."""
    if source.installed:
        return importlib.import_module(reference.source)
    modules = Modules(source, reference)
    _forget_others(source, modules)
    with modules.first():
        if not reference.is_file:
            return importlib.import_module(reference.source)
        name = f"own_{source.path.stem}_{source.sha256[:DIGITS]}"
        module = importlib.util.module_from_spec(modules.spec(name, source.main))
        sys.modules[name] = module  # dataclasses and pickle look for it there
        try:
            assert module.__spec__ is not None
            assert module.__spec__.loader is not None
            module.__spec__.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


class _Content(importlib.machinery.SourceFileLoader):
    """Runs the content that was hashed: not a file that has changed since, and no compiled file,
    which may hold other code than the file it lies beside."""

    def __init__(self, name: str, path: str, content: bytes) -> None:
        super().__init__(name, path)
        self.content = content

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.content, self.path)
        return code


def _stands(name: str) -> bool:
    """Whether a module of this name that is installed, or bitfront itself, is loaded. A file of the
    user's own that is called like it, such as `torch.py`, does not take its place: everything else
    in this process uses it."""
    if name in (*sys.builtin_module_names, __name__.partition(".")[0]):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return False
    path = Path(file).resolve()
    return is_installed(path.parents[1] if path.stem == "__init__" else path.parent)


class Modules(importlib.abc.MetaPathFinder):
    """Finds the modules of one source by their usual names. Other files of its folder are not
    found, since they are not part of the hash that was trusted; where the user wrote the reference
    themselves they are, behind everything that is installed."""

    def __init__(self, source: Source, reference: Reference) -> None:
        self.source = source
        self.files: dict[str, str] = {}
        self.folders: dict[str, str] = {}
        self.own = trusted.is_own(reference, source)
        for file in source.files:
            parts = PurePosixPath(file).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if not parts or _stands(parts[0]):
                continue
            if file.endswith(MODULE) and not self._is_shadow(reference, file):
                self.files[".".join(parts)] = file
            for depth in range(1, len(parts)):
                self.folders[".".join(parts[:depth])] = "/".join(parts[:depth])

    def _is_shadow(self, reference: Reference, file: str) -> bool:
        """Whether this is the file of the reference and called like a module of Python's."""
        main = reference.is_file and file == self.source.main
        return main and self.source.path.stem in sys.stdlib_module_names

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.files:
            return self.spec(fullname, self.files[fullname])
        if fullname not in self.folders:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = self._inside(self.folders[fullname])
        return spec

    def spec(self, name: str, file: str) -> importlib.machinery.ModuleSpec:
        """The specification of the module `name`, whose code is that of `file`."""
        path = str(self.source.root / file)
        package = file.endswith("/__init__.py")
        found = importlib.util.spec_from_file_location(
            name,
            path,
            loader=_Content(name, path, self.source.files[file]),
            submodule_search_locations=self._inside(str(PurePosixPath(file).parent))
            if package
            else None,
        )
        assert found is not None
        return found

    def _inside(self, folder: str) -> list[str]:
        return [str(self.source.root / folder)] if self.own else []

    @contextmanager
    def first(self) -> Iterator[None]:
        """Inside, these modules are found before all others; afterwards behind them, for imports
        inside functions that run later."""
        sys.meta_path.insert(0, self)
        if self.own and str(self.source.root) not in sys.path:
            sys.path.append(str(self.source.root))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            sys.meta_path.append(self)


def _forget_others(source: Source, modules: Modules) -> None:
    """Forget modules that were imported from an earlier state of the same files, or from other
    files of the same names in another folder of code."""
    names = {*modules.files, *modules.folders}
    for name in names & set(sys.modules):
        if (source.sha256, name) not in _imported and name != "__main__":
            del sys.modules[name]
    _imported.update((source.sha256, name) for name in names)


# (hash of a source, module of it) that may be in `sys.modules`.
_imported: set[tuple[str, str]] = set()
