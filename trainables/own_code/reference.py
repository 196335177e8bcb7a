"""References to code: `my_net.py:MyNet`, `my_package.nets:MyNet`, and, once it has been found and
hashed, `my_net.py:MyNet@3f2a9c1b7d20`. A reference with its hash is a complete name: it enters the
ids of trials, the ledger, recipes and packed files, and other code of the same name is noticed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bitfront.trainables.errors import UserError, quoted

# How much of the sha256 a reference carries, in hexadecimal digits.
DIGITS = 12
# The suffixes of files that hold code: a module, or an object pickled by value.
MODULE, PICKLE = ".py", ".pkl"
_FORM = re.compile(
    r"(?P<source>[^:@;]+?):(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:@(?P<digest>[0-9a-f]{12}))?"
)
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_HASHES = re.compile(r"@[0-9a-f]{12}(;[^\s,]*)?")


@dataclass(frozen=True)
class Reference:
    """A class or function by file or module. `digest`: the beginning of the hash of its code; ''
    where it has not been settled."""

    source: str
    name: str
    digest: str = ""

    @property
    def is_file(self) -> bool:
        return self.source.endswith((MODULE, PICKLE))

    @property
    def is_pickle(self) -> bool:
        return self.source.endswith(PICKLE)

    def with_digest(self, digest: str) -> Reference:
        return replace(self, digest=digest[:DIGITS])

    def __str__(self) -> str:
        return f"{self.source}:{self.name}" + (f"@{self.digest}" if self.digest else "")


def is_reference(text: str) -> bool:
    """Whether the text has the form of a reference. That of a dataset may have it too, where it
    names a family and not a module (`folder:birds`): families are looked up first."""
    found = _FORM.fullmatch(text)
    if found is None:
        return False
    source = found["source"]
    return source.endswith((MODULE, PICKLE)) or _DOTTED.fullmatch(source) is not None


def unfinished(text: str) -> str | None:
    """How a text that was meant to name code is written, as far as it can be told: `my_net.py` and
    `nets.MyNet` have no name behind a colon."""
    if text.endswith(MODULE):
        return f"code of your own is named with its class or function: {text}:NAME"
    module, _, name = text.rpartition(".")
    if module and _DOTTED.fullmatch(text):
        return f"code of your own is written {module}:{name}, or FILE.py:{name}"
    return None


def parse(text: str) -> Reference:
    """The reference that the text writes; a UserError for any other text."""
    found = _FORM.fullmatch(text)
    if found is None or not is_reference(text):
        raise UserError(
            f"{quoted(text)} names no code",
            "write FILE.py:NAME or PACKAGE.MODULE:NAME, for example my_net.py:MyNet",
        )
    return Reference(found["source"], found["name"], found["digest"] or "")


def called(text: str) -> str:
    """The name that the object of a reference has in its module."""
    return parse(text.partition(";")[0]).name.rpartition(".")[2]


def references_in(data: Any) -> list[str]:
    """The settled references among the texts of plain data, each once; of datasets and metrics
    without the declaration that follows the hash."""
    if isinstance(data, str):
        text = data.partition(";")[0]
        return [text] if is_reference(text) and parse(text).digest else []
    if isinstance(data, Mapping):
        data = [*data.keys(), *data.values()]
    if not isinstance(data, list | tuple):
        return []
    return list(dict.fromkeys(found for each in data for found in references_in(each)))


def shown(text: str) -> str:
    """The text as people read it: references without hashes and without what follows them."""
    return _HASHES.sub("", text)
