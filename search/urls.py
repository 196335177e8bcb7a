"""Addresses of databases and servers. Secrets in them, passwords and tokens, are neither shown nor
stored. What is stored is the address without them; a later turn finds them in the environment
again. A password may be written as it is, whatever is in it: the last @ ends it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from bitfront.trainables.errors import UserError

_HIDDEN = "***"
# What a path may hold that ends or changes it in an address.
QUOTED = "%?&;"
# user:password@ of any address, and what stands alone before the @ of a web address: a token.
# Behind the first colon of a web address there may be a port, and any @ is part of a path then.
_WEB = "https?|s3|gs|gcs|abfss?|wasbs?|hdfs|file|ray|ssh"
_SCHEME = re.compile(r"\b[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PORT = r"\d{1,5}(?:[/?#\s]|$)"
_PASSWORDS = (
    re.compile(rf"(?P<start>\b(?:{_WEB})://[^\s/@:]*):(?!{_PORT})\S+@", re.IGNORECASE),
    re.compile(rf"(?P<start>\b(?!(?:{_WEB}):)[a-z][a-z0-9+.-]*://[^\s/@:]*):\S+@", re.IGNORECASE),
)
_LONE_TOKEN = re.compile(r"(?P<start>\bhttps?://)[^\s/@:]+@", re.IGNORECASE)
_SECRET_NAME = r"[\w.-]*(?:token|passw|pwd|secret|key|sig|credential|auth)[\w.-]*"
_PARAMETER = re.compile(rf"(?P<mark>[?&;])(?P<name>{_SECRET_NAME})=[^&\s'\"]*", re.IGNORECASE)
# Variables that are a secret as a whole.
_SECRETS = (
    "PGPASSWORD",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "RAY_AUTH_TOKEN",
)


class Address(NamedTuple):
    """A URL taken apart, as it is written."""

    scheme: str
    user: str | None
    secret: str | None
    """the password, or a token that stands alone"""
    place: str
    """host, port, path and parameters"""

    @property
    def is_web(self) -> bool:
        return re.fullmatch(_WEB, self.scheme, re.IGNORECASE) is not None


def split(url: str) -> Address:
    """Of something that is no address, all is its place."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return Address("", None, None, url)
    plain = Address(scheme, None, None, rest)
    if "@" not in rest or rest.startswith("/") or scheme.lower().startswith("sqlite"):
        return plain
    login, _, place = rest.rpartition("@")
    user, colon, password = login.partition(":")
    if re.search("[/?#]", user) or (plain.is_web and re.match(r"\d{1,5}[/?#]", password)):
        return plain  # the @ is of a path or a parameter
    if colon:
        return Address(scheme, user, password, place)
    if _is_http(plain):
        return Address(scheme, None, login, place)
    return Address(scheme, login, None, place)


def _is_http(address: Address) -> bool:
    return address.scheme.lower() in ("http", "https")


def canonical(url: str) -> str:
    """The address as every library understands it: whatever is special in its login is quoted.
    Refuses one of which nobody can say where its password ends."""
    found = split(url)
    _check_end_of_login(url, found)
    if found.user is None and found.secret is None:
        return url
    login = ":".join(_quoted(part) for part in (found.user, found.secret) if part is not None)
    return f"{found.scheme}://{login}@{found.place}"


def _quoted(text: str) -> str:
    return quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", text), safe="%")


def _check_end_of_login(url: str, found: Address) -> None:
    """A path or parameter with an @ is not told from a password with a slash by guessing: the wrong
    guess would store half of it."""
    rest = url.partition("://")[2]
    if "@" not in rest or rest.startswith("/") or found.scheme.lower().startswith("sqlite"):
        return
    login = rest.rpartition("@")[0]
    host = r"[\w.-]+(?::\d+)?"
    if _is_http(found) or (found.is_web and ":" in login):
        unclear = re.match(r"[^:@]*[/?#]|[^:@/?#]*:\d{1,5}[/?#]", login) or re.search(
            rf"@{host}[/?#]", login
        )
    else:
        unclear = re.search(rf"(?:^|@){host}/[^?@]*\?\w+=", login)
    if unclear:
        end = rest.rpartition("@")[2].partition("?")[0]
        raise UserError(
            f"{found.scheme}://...@{end}: it cannot be told where its password ends",
            "write @ as %40, / as %2F, ? as %3F and # as %23 in a password, "
            "and @ as %40 behind the host",
        )


_known: set[str] = set()


def know(given: Any) -> None:
    """Remember the secrets of addresses in a text, or in texts anywhere in plain data, to keep them
    out of whatever is shown: in a sentence nobody can say where a password with a space ends."""
    if isinstance(given, str):
        _known.update(_secrets_in(given))
    elif isinstance(given, dict):
        know(list(given.values()))
    elif isinstance(given, list | tuple):
        for each in given:
            know(each)


def _secrets_in(text: str) -> Iterable[str]:
    """Of the address a text ends with; `key=URL` is one too."""
    start = _SCHEME.search(text)
    if start is None:
        return
    found = split(text[start.start() :])
    if found.secret:
        yield found.secret
    for part in found.place.partition("?")[2].split("&"):
        name, _, value = part.partition("=")
        if value and re.fullmatch(_SECRET_NAME, name, re.IGNORECASE):
            yield value


def has_secret(text: str) -> bool:
    """Whether a text is or ends with an address that has one."""
    return any(True for _ in _secrets_in(text))


def _all_known() -> set[str]:
    given = [text for text in (*os.environ.values(), *sys.argv) if "://" in text]
    secrets = {secret for text in given for secret in _secrets_in(text)}
    return _known | secrets | {os.environ[n] for n in _SECRETS if os.environ.get(n)}


def redacted(text: str) -> str:
    """Any text with the secrets of its addresses starred out."""
    for secret in sorted(_all_known(), key=len, reverse=True):
        text = _without(text, secret)
    for password in _PASSWORDS:
        text = password.sub(rf"\g<start>:{_HIDDEN}@", text)
    text = _LONE_TOKEN.sub(rf"\g<start>{_HIDDEN}@", text)
    return _PARAMETER.sub(rf"\g<mark>\g<name>={_HIDDEN}", text)


def _without(text: str, secret: str) -> str:
    """A known secret where secrets stand, in any of the ways it may be written; elsewhere too where
    it cannot be an ordinary word or number."""
    plain = unquote(secret)
    forms = {secret, plain, quote(plain, safe=""), _quoted(secret)}
    forms |= {repr(form)[1:-1] for form in forms} | {json.dumps(form)[1:-1] for form in forms}
    for form in sorted(forms, key=len, reverse=True):
        for before in (":", "//"):
            text = text.replace(f"{before}{form}@", f"{before}{_HIDDEN}@")
        if len(form) >= 6 and re.search(r"[^\W\d]", form) and not form.isalpha():
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", _HIDDEN, text)
    return text


def without_secrets(url: str) -> str:
    """The address as it may be stored."""
    found = split(url)
    if not found.scheme:
        return url
    # Of a web address no name is kept either: alone it would read as a token.
    login = f"{found.user}@" if found.user and not _is_http(found) else ""
    base, mark, query = found.place.partition("?")
    named = re.compile(rf"(?:^|;){_SECRET_NAME}=", re.IGNORECASE)
    kept = "&".join(part for part in query.split("&") if part and not named.search(part))
    return f"{found.scheme}://{login}{base}" + (f"{mark}{kept}" if kept else "")


def with_secrets(stored: str, known: str | None) -> str:
    """A stored address with the secrets of `known`, where that is the same address."""
    if known is None or without_secrets(canonical(known)) != without_secrets(stored):
        return stored
    return canonical(known)


def server_of(url: str) -> str:
    """What an address reaches, whoever logs in there and whatever is asked for: scheme, host and
    port, and the parameters, which may name another host. Of a file it is the whole address."""
    found = split(without_secrets(with_whole_path(url)))
    if not found.scheme or found.place.startswith("/") or found.scheme.startswith("sqlite"):
        return without_secrets(with_whole_path(url))
    head, mark, query = found.place.partition("?")
    host = re.split("[/#]", head, maxsplit=1)[0].lower()
    return f"{found.scheme.lower()}://{host}{mark}{query}"


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
