"""The files that a reference stands for, and their hash, found without running any code: the file
itself and, recursively, the modules it imports from its own folder or package; of an installed
package the file alone. What is loaded in other ways (a text file, an import by a computed name) is
not part of it."""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.own_code.reference import MODULE, PICKLE, Reference

# What one reference may stand for, so that a wrong one does not read half a disk.
MOST_FILES = 2_000
MOST_BYTES = 32_000_000
_PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True, eq=False)
class Source:
    """The code of one reference. `files`: their content by path below `root`; `main`: the one that
    defines the object; `installed`: it is in site-packages, where every machine has its own."""

    root: Path
    main: str
    files: Mapping[str, bytes]
    installed: bool

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for name in sorted(self.files):
            content = self.files[name]
            digest.update(f"{name} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    @property
    def path(self) -> Path:
        return self.root / self.main


def read_source(reference: Reference, path: Path) -> Source:
    """The source of a reference whose file, or whose module's file, is `path`."""
    root = path.parent
    if not reference.is_file:
        root = path.parents[reference.source.count(".") + (path.name == "__init__.py")]
    installed = is_installed(root)
    files: dict[str, bytes] = {}
    size = 0
    waiting = [path, *_packages_above(path, root)]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(root).as_posix()
        if name in files:
            continue
        files[name] = _content(file)
        size += len(files[name])
        if len(files) > MOST_FILES or size > MOST_BYTES:
            raise UserError(
                f"{reference.source} imports more than {MOST_FILES:,} files of {root}, or more "
                f"than {MOST_BYTES // 10**6} MB",
                "name a module in a package of its own",
            )
        if file.suffix == MODULE and not installed:
            waiting += _imports(file, files[name], root)
    return Source(root, path.relative_to(root).as_posix(), files, installed)


def module_file(module: str, folders: Iterable[Path]) -> Path | None:
    """The file of a module, found in these folders or where Python finds modules, without importing
    anything; None where there is none in Python."""
    paths = [*map(str, folders), *sys.path]
    for part in module.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, paths)
        if spec is None and part == module.partition(".")[0]:
            spec = _found_by_hooks(part)
        if spec is None:
            return None
        paths = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec is not None else None
    return Path(origin).resolve() if origin and origin.endswith(MODULE) else None


def _found_by_hooks(name: str) -> importlib.machinery.ModuleSpec | None:
    """A top-level module that only an import hook finds, such as that of an editable install."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module without a specification
        return None


def is_installed(root: Path) -> bool:
    """Whether a folder is one of those that this Python installs packages into. A folder that is
    only called so is not: whatever is in it would be trusted."""
    places = {sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib")}
    places |= {place for place in sys.path if Path(place).name in _PACKAGES}
    return any(root == Path(place).resolve() for place in places)


def _content(file: Path) -> bytes:
    try:
        if file.suffix not in (MODULE, PICKLE) or not file.is_file():
            raise UserError(f"{file}: no such file")
        if file.stat().st_size > MOST_BYTES:
            raise UserError(f"{file}: code of more than {MOST_BYTES // 10**6} MB")
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None


def _packages_above(file: Path, root: Path) -> Iterator[Path]:
    """The `__init__.py` of the packages that a file is in."""
    for folder in file.parents:
        if folder == root or not folder.is_relative_to(root):
            return
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"


def _imports(file: Path, content: bytes, root: Path) -> list[Path]:
    """The files below `root` that a module imports."""
    try:
        tree = ast.parse(content, str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"{file}:{line}" if line else str(file)
        raise UserError(f"{where} is not valid Python: {first_line(error)}") from None
    found: list[Path] = []
    for node in ast.walk(tree):
        for name in _names(node, file, root):
            found += _files_of(name, root)
    return found


def _names(node: ast.AST, file: Path, root: Path) -> Iterator[str]:
    """The dotted names that a statement may import, seen from `root`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = file.parents[node.level - 1] if node.level <= len(file.parents) else root
            if not above.is_relative_to(root):
                return
            base = ".".join((*above.relative_to(root).parts, *filter(None, [base])))
        yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _files_of(name: str, root: Path) -> list[Path]:
    """The files that importing a dotted name reads, as far as they are below `root`: packages on
    the way, and the module. The last part may be a name in it."""
    found: list[Path] = []
    place = root
    for part in name.split("."):
        if (place / f"{part}{MODULE}").is_file():
            return [*found, place / f"{part}{MODULE}"]
        place /= part
        if (place / "__init__.py").is_file():
            found.append(place / "__init__.py")
        elif not place.is_dir():
            break
    return found
