"""Code that the user trusts, by hash. Code named in a YAML that the user wrote, or in Python, is
trusted when it is loaded; code that a recipe, a packed file or the folder of a search names runs
only where the user has run it before, or says so once (`--trust`). That holds for code of installed
packages too, by name: `shutil:rmtree` is installed everywhere.

The hashes are kept in a folder of the user, outside of all searches, so that no search can bring
its own; a file per hash, so that two commands at once lose none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from bitfront.trainables.errors import CodeError
from bitfront.trainables.files import user_folder, write_atomically
from bitfront.trainables.own_code.reference import Reference
from bitfront.trainables.own_code.sources import Source

# Trusted in this process, whether or not the file could be written; with the folder, or ''.
_now: dict[str, str] = {}
# Whether this command trusts all code it meets (`--trust`).
_all = False
# Whether what is read now may have been written by somebody else.
_received: ContextVar[bool] = ContextVar("received", default=False)


def folder() -> Path:
    """The folder with a file per hash, of this user on this machine."""
    return user_folder() / "trusted"


def key(reference: Reference, source: Source) -> str:
    """What is trusted: a source of the user's own by its hash, of an installed one only the object
    that is named."""
    if not source.installed:
        return source.sha256
    return hashlib.sha256(f"{source.sha256} {reference.name}".encode()).hexdigest()


@contextmanager
def received() -> Iterator[None]:
    """Inside, what is read may have been written by somebody else, such as the folder of a search:
    settling a reference trusts nothing."""
    token = _received.set(True)
    try:
        yield
    finally:
        _received.reset(token)


def is_received() -> bool:
    """Whether this is inside of `received`."""
    return _received.get()


def trust(sha256: str, root: Path | None = None) -> None:
    """Store that the user trusts the code with this hash; where the file cannot be written, that
    counts for this process only. `root`: the folder in which the user named it, whose other files
    it may import by computed names."""
    place, kept = "" if root is None else str(root), _kept(sha256)
    trust_now(sha256, place)
    if kept is not None and place in ("", kept):
        return
    try:
        write_atomically(folder() / sha256, place)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return


def trust_now(sha256: str, root: str = "") -> None:
    """Trust the code with this hash in this process only."""
    _now[sha256] = root or _now.get(sha256, "")


def trust_all(given: bool = True) -> None:
    """Trust all code that this process will meet: the user said `--trust`."""
    global _all
    _all = given


@contextmanager
def trusting(given: bool = True) -> Iterator[None]:
    """Inside, if `given`, all code that is met is trusted."""
    before = _all
    trust_all(given or before)
    try:
        yield
    finally:
        trust_all(before)


def is_trusted(sha256: str) -> bool:
    """Whether the user trusts the code with this hash."""
    return sha256 in _now or _kept(sha256) is not None


def is_own(reference: Reference, source: Source) -> bool:
    """Whether the user named this code themselves in the folder it is in."""
    trusted, root = key(reference, source), str(source.root)
    return root in (_now.get(trusted), _kept(trusted))


def named_in(reference: Reference, source: Source) -> str:
    """The folder in which the user named this code; '' where they did not, or it is not known."""
    trusted = key(reference, source)
    return _now.get(trusted) or _kept(trusted) or ""


def check(reference: Reference, source: Source) -> None:
    """Raise CodeError unless the user trusts this code; with `--trust`, remember it."""
    trusted = key(reference, source)
    if is_trusted(trusted):
        return
    if _all:
        trust(trusted)
        return
    raise CodeError(
        f"{reference.source}:{reference.name} is code that you have not run before: "
        f"{source.path}, sha256 {source.sha256[:16]}",
        "read it, and if you trust it say so once: --trust, in Python trust=True",
    )


def _kept(sha256: str) -> str | None:
    """What is stored for a hash: the folder in which the user named the code, or ''; None where
    they do not trust it."""
    try:
        return (folder() / sha256).read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError):  # no home, no file, or a damaged one
        return None
