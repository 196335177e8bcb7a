"""Servers and storage places that the user has named. The folder of a search may come from somebody
else, and a server that it names would get the user's passwords. So a server is used only when the
user has named it too: by an option, in the environment, or by starting a search on it.

The names are kept in a file of the user, outside of all searches, so that no folder can bring its
own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from bitfront.search.urls import canonical, know, redacted, server_of
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import user_folder, write_atomically

Kind = Literal["ledger", "tracking", "storage"]
# Environment variables that name a server or storage for all searches.
VARIABLES: dict[Kind, str] = {
    "ledger": "BITFRONT_LEDGER",
    "tracking": "MLFLOW_TRACKING_URI",
    "storage": "BITFRONT_STORAGE",
}
KEEPS: dict[Kind, str] = {
    "ledger": "keeps its ledger at",
    "tracking": "sends its runs to",
    "storage": "keeps checkpoints at",
}
# Named in this process, whether or not the file could be written.
_now: set[str] = set()
# Named by an option of this command, with the password if there is one.
_given: dict[Kind, str] = {}


def file() -> Path:
    """The file with the names, of this user on this machine."""
    return user_folder() / "named.json"


def remember(kind: Kind, url: str | None) -> None:
    """Store that the user has named this server; where the file cannot be written, that counts for
    this command only."""
    # A text that is no URL may hold a password that cannot be recognized.
    if url is None or (kind != "storage" and "://" not in url):
        return
    word = f"{kind} {server_of(url)}"
    _now.add(word)
    kept = _kept()
    if word in kept:
        return
    try:
        write_atomically(file(), json.dumps(sorted({*kept, word}), indent=1) + "\n")
    except (OSError, RuntimeError):
        return


def give(kind: Kind, url: str) -> None:
    """Take the address that an option of this command gives, and store its server as named."""
    know(url)
    _given[kind] = canonical(url)
    remember(kind, url)


def given(kind: Kind) -> str | None:
    """The address from an option or the environment, perhaps with a password."""
    return _given.get(kind) or os.environ.get(VARIABLES[kind]) or None


def is_named(kind: Kind, url: str) -> bool:
    """Whether the user has named the server of this URL."""
    known = os.environ.get(VARIABLES[kind])
    server = server_of(url)
    if known and server_of(known) == server:
        return True
    return f"{kind} {server}" in _now | _kept()


def check(kind: Kind, url: str | None, search: str) -> None:
    """Raise UserError where only the folder of a search names the server."""
    if url is None or is_named(kind, url):
        return
    server = redacted(server_of(url))
    raise UserError(
        f"search '{search}' {KEEPS[kind]} {server}, which you have not named",
        f"if you trust it, say so once: --{kind} {server} (or {VARIABLES[kind]})",
    )


def _kept() -> set[str]:
    try:
        found = json.loads(file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # no home, no file, or a damaged one
        return set()
    return {word for word in found if isinstance(word, str)} if isinstance(found, list) else set()
