"""Addresses of databases and servers. Secrets in them, passwords and tokens, are neither shown nor
stored. What is stored is the address without them; a later turn finds them in the environment
again."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote

_HIDDEN = "***"
# What a path may hold that ends or changes it in an address.
QUOTED = "%?&;"
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


# --- files of SQLite ----------------------------------------------------------------------------


def sqlite_url(path: Path, scheme: str = "sqlite") -> str:
    """The address of a SQLite file, whatever its path holds. What means something in an address is
    quoted and nothing else: people read it."""
    quoted = "".join(f"%{ord(c):02X}" if c in QUOTED else c for c in str(path))
    return f"{scheme}:///{quoted}"


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite address; None for other databases."""
    scheme, mark, rest = url.partition(":///")
    if not mark or scheme not in ("sqlite", "sqlite+pysqlite"):
        return None
    path, _, query = rest.partition("?")
    if "uri=true" in query.split("&"):
        path = unquote(path.removeprefix("file:"))
        return Path(unquote(path) if _unquotes() else path)
    return Path(unquote(path))


def sqlite_uri(path: Path, query: str, scheme: str = "sqlite") -> str:
    """The address of a SQLite file with what only SQLite itself understands, which takes the quotes
    of the name off; SQLAlchemy may before."""
    quoted = quote(quote(str(path)) if _unquotes() else str(path))
    return f"{scheme}:///file:{quoted}?{query}uri=true"


def understood(url: str) -> str:
    """A SQLite address as the installed SQLAlchemy reads it: before 2.1 quotes in a path stayed."""
    path = sqlite_path(url)
    scheme, _, rest = url.partition(":///")
    query = rest.partition("?")[2]
    if path is None or "%" not in url or "uri=true" in query or _unquotes():
        return url
    if "?" in str(path):
        return sqlite_uri(path, query and f"{query}&", scheme)
    return f"{scheme}:///{path}" + (query and f"?{query}")


def sqlite_for_mlflow(path: Path) -> str:
    """The address of MLflow's own file. By its plain scheme MLflow makes the folder of the file,
    quotes and all, beside the one that is meant."""
    plain = sqlite_url(path)
    return understood(sqlite_url(path, "sqlite+pysqlite")) if "%" in plain else plain


def _unquotes() -> bool:
    from sqlalchemy import make_url

    return make_url("sqlite:///%41").database == "A"


def with_whole_path(url: str) -> str:
    """The address of a SQLite file wherever it is opened from."""
    path = sqlite_path(url)
    if path is None or str(path) in (".", ":memory:"):
        return url
    scheme, _, rest = url.partition(":///")
    _, mark, query = rest.partition("?")
    if "uri=true" in query.split("&"):
        return url
    return sqlite_url(path.resolve(), scheme) + mark + query


def with_driver(url: str) -> str:
    """The address of a database with the driver that is installed: which one `postgresql://` alone
    means, changes between versions of SQLAlchemy."""
    scheme, mark, rest = url.partition("://")
    if scheme not in ("postgres", "postgresql"):
        return understood(url)
    driver = "psycopg2" if find_spec("psycopg") is None and find_spec("psycopg2") else "psycopg"
    return f"postgresql+{driver}{mark}{rest}"
