"""Addresses of databases and servers. Secrets in them, passwords and tokens, are neither shown nor
stored. What is stored is the address without them; a later turn finds them in the environment
again."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

_HIDDEN = "***"
# user:password@ of any address, and what stands alone before the @ of a web address: a token. In
# the address of a database a password may have slashes, elsewhere a slash ends the host.
_WEB = "https?|s3|gs|gcs|abfss?|wasbs?|hdfs|file|ray|ssh"
_PASSWORDS = (
    re.compile(rf"(?P<start>\b(?:{_WEB})://[^\s/@:]*):[^\s/]+@", re.IGNORECASE),
    re.compile(
        rf"(?P<start>\b(?!(?:{_WEB}):)[a-z][a-z0-9+.-]*://[^\s/@:]*):[^\s?]+@", re.IGNORECASE
    ),
)
_LONE_TOKEN = re.compile(r"(?P<start>\bhttps?://)[^\s/@:]+@", re.IGNORECASE)
_PARAMETER = re.compile(
    r"(?P<mark>[?&;])(?P<name>[\w.-]*(?:token|passw|pwd|secret|key|sig|credential|auth)[\w.-]*)="
    r"[^&;#\s'\"]*",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Any text with the secrets of its addresses starred out."""
    for password in _PASSWORDS:
        text = password.sub(rf"\g<start>:{_HIDDEN}@", text)
    text = _LONE_TOKEN.sub(rf"\g<start>{_HIDDEN}@", text)
    return _PARAMETER.sub(rf"\g<mark>\g<name>={_HIDDEN}", text)


def without_secrets(url: str) -> str:
    """The address as it may be stored."""
    for password in _PASSWORDS:
        url = password.sub(r"\g<start>@", url)
    url = _LONE_TOKEN.sub(r"\g<start>", url)
    url = _PARAMETER.sub(r"\g<mark>", url)
    base, mark, query = url.partition("?")
    kept = "&".join(part for part in re.split("[&;]", query) if part)
    return f"{base}{mark}{kept}" if kept else base


def with_secrets(stored: str, known: str | None) -> str:
    """A stored address with the secrets of `known`, where that is the same address."""
    return known if known is not None and without_secrets(known) == stored else stored


def with_whole_path(url: str) -> str:
    """The address of a SQLite file wherever it is opened from."""
    scheme, mark, path = url.partition(":///")
    if not mark or not scheme.startswith("sqlite") or not path:
        return url
    return f"{scheme}{mark}{Path(path).resolve()}"


def with_driver(url: str) -> str:
    """The address of a database with the driver that is installed: which one `postgresql://` alone
    means, changes between versions of SQLAlchemy."""
    scheme, mark, rest = url.partition("://")
    if scheme not in ("postgres", "postgresql"):
        return url
    driver = "psycopg2" if find_spec("psycopg") is None and find_spec("psycopg2") else "psycopg"
    return f"postgresql+{driver}{mark}{rest}"
