"""Code that the user trusts, by hash. Code named in a YAML that the user wrote, or in Python, is
trusted when it is loaded; code that a recipe, a packed file or the folder of a search names runs
only where the user has run it before, or says so once (`--trust`).

The hashes are kept in a file of the user, outside of all searches, so that no folder can bring its
own."""

from __future__ import annotations

import json
from pathlib import Path

from bitfront.trainables.errors import UserError
from bitfront.trainables.files import user_folder, write_atomically
from bitfront.trainables.own_code.reference import Reference
from bitfront.trainables.own_code.sources import Source

# Trusted in this process, whether or not the file could be written.
_now: set[str] = set()
# Whether this command trusts all code it meets (`--trust`).
_all = False


def file() -> Path:
    """The file with the hashes, of this user on this machine."""
    return user_folder() / "trusted.json"


def trust(sha256: str) -> None:
    """Store that the user trusts the code with this hash; where the file cannot be written, that
    counts for this process only."""
    trust_now(sha256)
    kept = _kept()
    if sha256 in kept:
        return
    try:
        write_atomically(file(), json.dumps(sorted({*kept, sha256}), indent=1) + "\n")
    except (OSError, RuntimeError):
        return


def trust_now(sha256: str) -> None:
    """Trust the code with this hash in this process only."""
    _now.add(sha256)


def trust_all() -> None:
    """Trust all code that this process will meet: the user said `--trust`."""
    global _all
    _all = True


def is_trusted(sha256: str) -> bool:
    """Whether the user trusts the code with this hash."""
    return sha256 in _now or sha256 in _kept()


def check(reference: Reference, source: Source) -> None:
    """Raise UserError unless the user trusts this code; with `--trust`, remember it."""
    if source.installed or is_trusted(source.sha256):
        return
    if _all:
        trust(source.sha256)
        return
    raise UserError(
        f"{reference.source}:{reference.name} is code that you have not run before: "
        f"{source.path}, sha256 {source.sha256[:16]}",
        "read it, and if you trust it say so once: --trust",
    )


def _kept() -> set[str]:
    try:
        found = json.loads(file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # no home, no file, or a damaged one
        return set()
    return {word for word in found if isinstance(word, str)} if isinstance(found, list) else set()
