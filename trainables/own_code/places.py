"""Where code is looked for: in the folders that were named in this process (that of a YAML, of a
recipe, of a search, of code that was sent to a worker), in the current folder, and for modules
where Python finds them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bitfront.trainables.errors import CodeError, UserError
from bitfront.trainables.own_code import trusted
from bitfront.trainables.own_code.reference import Reference, is_reference, parse
from bitfront.trainables.own_code.sources import Source, module_file, read_source
from bitfront.trainables.text_files import whole_path

_folders: list[Path] = []


def look_in(folder: Path | str) -> None:
    """Look for code in this folder too, before all others."""
    place = whole_path(folder)
    if place in _folders:
        _folders.remove(place)
    _folders.insert(0, place)


def settle(text: str, folder: Path | str | None = None) -> str:
    """The reference with the hash of the code it stands for now. The user is taken to trust a
    reference they wrote, without a hash; one that was received must be trusted already. `folder`:
    that of their YAML."""
    if folder is not None:
        look_in(folder)
    reference = parse(text)
    source = find(reference)
    if trusted.is_received():
        trusted.check(reference, source)
    elif not reference.digest:
        trusted.trust(trusted.key(reference, source), source.root)
    return str(reference.with_digest(source.sha256))


def find_path(text: str, data_dir: Path | str | None = None) -> Path:
    """The file or folder that a text names in a YAML of the user: below the folder of the YAML, the
    data directory or the current folder; the last one where it is in none of them."""
    given = Path(os.path.expanduser(text))
    folders = [*_folders, *([Path(data_dir)] if data_dir else []), Path.cwd()]
    found = [folder / given for folder in folders]
    return whole_path(next((path for path in found if path.exists()), found[-1]))


def find(reference: Reference) -> Source:
    """The code of a reference; a CodeError where there is none, or only code that has changed."""
    other = None
    for path in _paths(reference):
        source = _read(reference, path)
        if not reference.digest or source.sha256.startswith(reference.digest):
            return source
        other = other or source
    if other is not None:
        raise CodeError(
            f"{other.path} has changed: {reference.source} was @{reference.digest}, "
            f"it is @{other.sha256[: len(reference.digest)]} now",
            "bring the old code back, or start a new search with the new one (--name)",
        )
    looked = [*dict.fromkeys((*map(str, _folders), os.getcwd()))]
    hint = f"looked in {', '.join(looked[:4])}"
    if not reference.is_file:
        package = reference.source.partition(".")[0]
        hint += f" and where Python finds modules: install {package} if it is a package"
    raise CodeError(f"{reference.source}: no such {_kind(reference)}", hint)


def origins(references: Iterable[str]) -> dict[str, str]:
    """The files of these references by reference, for a recipe or packed file that is read
    elsewhere; without those that have changed since, or are gone."""
    found = {}
    for text in references:
        with contextlib.suppress(UserError):
            found[text] = str(find(parse(text)).path)
    return found


def edited(text: str, beside: Iterable[Path] = ()) -> tuple[Source, Path, str] | None:
    """(code that is used, file of the user, its hash) where the file that the user has under this
    name is no longer the code of the reference; None where it is, or they have none. Theirs is in
    the current folder, in one of `beside`, or where they named it. The hash is '' where the file
    cannot be read."""
    reference = parse(text)
    used = find(reference)
    if used.installed or reference.is_pickle:
        return None
    named = trusted.named_in(reference, used)
    for folder in (Path.cwd(), *beside, *([Path(named)] if named else [])):
        path = _file_in(folder, reference)
        if path is None or path == used.path:
            continue
        try:
            there = _read(reference, path).sha256
        except UserError:
            there = ""
        return None if there == used.sha256 else (used, path, there[: len(reference.digest)])
    return None


def _file_in(folder: Path, reference: Reference) -> Path | None:
    """The file of a reference in a folder, or, of a module, where Python finds it from there."""
    if not reference.is_file:
        return module_file(reference.source, [folder])
    given = folder / os.path.expanduser(reference.source)
    found = next((p for p in (given, folder / given.name) if p.is_file()), None)
    return None if found is None else found.resolve()


def look_where(stored: Mapping[str, str]) -> None:
    """Look for code in the folders that `origins` named, behind all others."""
    for text, path in stored.items():
        if is_reference(text):
            up = 1 if parse(text).is_file else parse(text).source.count(".") + 1
            place = Path(path)
            up += place.name == "__init__.py"
            if place.is_absolute() and len(place.parents) >= up:
                root = place.parents[up - 1]
                if root not in _folders:
                    _folders.append(root)


def _kind(reference: Reference) -> str:
    return "file" if reference.is_file else "module"


def _paths(reference: Reference) -> Iterator[Path]:
    """The files that may hold the code, the most likely first."""
    folders = [*_folders, Path.cwd()]
    if not reference.is_file:
        for folder in folders:
            found = module_file(reference.source, [folder])
            if found is not None:
                yield found
        return
    given = Path(os.path.expanduser(reference.source))
    tried = [folder / given for folder in folders]
    tried += [folder / given.name for folder in folders]
    if reference.is_pickle and reference.digest:
        tried += [folder / reference.digest / given.name for folder in folders]
    for path in dict.fromkeys(tried):
        if path.is_file():
            yield path.resolve()


# The sources read so far, each with the state its files had.
_sources: dict[tuple[Reference, Path], tuple[Source, dict[Path, tuple[int, int]]]] = {}


def _read(reference: Reference, path: Path) -> Source:
    """The source of a reference, read again only where one of its files has changed: one command
    asks many times."""
    kept = _sources.get((reference, path))
    if kept is not None and kept[1] == _states(kept[0]):
        return kept[0]
    source = read_source(reference, path)
    _sources[reference, path] = (source, _states(source))
    return source


def _states(source: Source) -> dict[Path, tuple[int, int]]:
    """Time and size of every file of a source; (0, 0) for one that is gone."""
    states = {}
    for name in source.files:
        path = source.root / name
        try:
            found = path.stat()
            states[path] = (found.st_mtime_ns, found.st_size)
        except OSError:
            states[path] = (0, 0)
    return states
