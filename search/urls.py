"""URLs of databases and servers. Secrets in them, passwords and tokens, are neither shown nor
stored: what is stored is the URL without them, and a later turn takes them from the environment. A
password may hold any character without quoting: the last @ ends it."""

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
# Characters of a path that have a meaning in a URL.
QUOTED = "%?&;"
# user:password@ of any URL, and a lone token before the @ of a web URL. After the first colon of a
# web URL there may be a port; then an @ is part of the path.
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
# Environment variables whose whole value is a secret.
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
    """the password, or a lone token"""
    place: str
    """host, port, path and parameters"""

    @property
    def is_web(self) -> bool:
        """Whether it is of a web server, an object store or a file."""
        return re.fullmatch(_WEB, self.scheme, re.IGNORECASE) is not None


def split(url: str) -> Address:
    """The parts of a URL; a text that is no URL is all `place`."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return Address("", None, None, url)
    plain = Address(scheme, None, None, rest)
    if "@" not in rest or rest.startswith("/") or scheme.lower().startswith("sqlite"):
        return plain
    login, _, place = rest.rpartition("@")
    user, colon, password = login.partition(":")
    if re.search("[/?#]", user) or (plain.is_web and re.match(r"\d{1,5}[/?#]", password)):
        return plain  # the @ belongs to a path or a parameter
    if colon:
        return Address(scheme, user, password, place)
    if _is_http(plain):
        return Address(scheme, None, login, place)
    return Address(scheme, login, None, place)


def _is_http(address: Address) -> bool:
    return address.scheme.lower() in ("http", "https")


def canonical(url: str) -> str:
    """The URL with special characters of its login quoted, as every library understands it.
    UserError where it is unclear where the password ends."""
    found = split(url)
    _check_end_of_login(url, found)
    if found.user is None and found.secret is None:
        return url
    login = ":".join(_quoted(part) for part in (found.user, found.secret) if part is not None)
    return f"{found.scheme}://{login}@{found.place}"


def _quoted(text: str) -> str:
    return quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", text), safe="%")


def _check_end_of_login(url: str, found: Address) -> None:
    """Raise UserError where an @ may belong to a password with a slash or to a path: a wrong guess
    would store half of the password."""
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
    """Remember the secrets of the URLs in a text, or in nested data, so that `redacted` finds them:
    in a sentence it is unclear where a password with a space ends."""
    if isinstance(given, str):
        _known.update(_secrets_in(given))
    elif isinstance(given, dict):
        know(list(given.values()))
    elif isinstance(given, list | tuple):
        for each in given:
            know(each)


def _secrets_in(text: str) -> Iterable[str]:
    """The secrets of the URL that a text ends with, as in `key=URL`."""
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
    """Whether a text is, or ends with, a URL that has a secret."""
    return any(True for _ in _secrets_in(text))


def _all_known() -> set[str]:
    given = [text for text in (*os.environ.values(), *sys.argv) if "://" in text]
    secrets = {secret for text in given for secret in _secrets_in(text)}
    return _known | secrets | {os.environ[n] for n in _SECRETS if os.environ.get(n)}


def redacted(text: str) -> str:
    """The text with all secrets replaced by stars."""
    for secret in sorted(_all_known(), key=len, reverse=True):
        text = _without(text, secret)
    for password in _PASSWORDS:
        text = password.sub(rf"\g<start>:{_HIDDEN}@", text)
    text = _LONE_TOKEN.sub(rf"\g<start>{_HIDDEN}@", text)
    return _PARAMETER.sub(rf"\g<mark>\g<name>={_HIDDEN}", text)


def _without(text: str, secret: str) -> str:
    """The text without a known secret, in any way it may be quoted: replaced where a URL has
    secrets, and elsewhere too unless it could be an ordinary word or number."""
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
    """The URL without secrets, as it may be stored."""
    found = split(url)
    if not found.scheme:
        return url
    # The user of a web URL is left out too: alone it would read as a token.
    login = f"{found.user}@" if found.user and not _is_http(found) else ""
    base, mark, query = found.place.partition("?")
    named = re.compile(rf"(?:^|;){_SECRET_NAME}=", re.IGNORECASE)
    kept = "&".join(part for part in query.split("&") if part and not named.search(part))
    return f"{found.scheme}://{login}{base}" + (f"{mark}{kept}" if kept else "")


def with_secrets(stored: str, known: str | None) -> str:
    """The stored URL with the secrets of `known`, where that is the same URL."""
    if known is None or without_secrets(canonical(known)) != without_secrets(stored):
        return stored
    return canonical(known)


def server_of(url: str) -> str:
    """The server that a URL reaches: scheme, host, port, and the parameters, which may name another
    host. For a file the whole URL."""
    found = split(without_secrets(with_whole_path(url)))
    if not found.scheme or found.place.startswith("/") or found.scheme.startswith("sqlite"):
        return without_secrets(with_whole_path(url))
    head, mark, query = found.place.partition("?")
    host = re.split("[/#]", head, maxsplit=1)[0].lower()
    return f"{found.scheme.lower()}://{host}{mark}{query}"


# --- files of SQLite ----------------------------------------------------------------------------


def sqlite_url(path: Path, scheme: str = "sqlite") -> str:
    """The URL of a SQLite file. Only characters with a meaning in a URL are quoted, so that people
    can read it."""
    quoted = "".join(f"%{ord(c):02X}" if c in QUOTED else c for c in str(path))
    return f"{scheme}:///{quoted}"


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL; None for other databases."""
    scheme, mark, rest = url.partition(":///")
    if not mark or scheme not in ("sqlite", "sqlite+pysqlite"):
        return None
    path, _, query = rest.partition("?")
    if "uri=true" in query.split("&"):
        path = unquote(path.removeprefix("file:"))
        return Path(unquote(path) if _unquotes() else path)
    return Path(unquote(path))


def sqlite_uri(path: Path, query: str, scheme: str = "sqlite") -> str:
    """The URL of a SQLite file with options that SQLite itself reads. SQLite unquotes the path, and
    some versions of SQLAlchemy do so before."""
    quoted = quote(quote(str(path)) if _unquotes() else str(path))
    return f"{scheme}:///file:{quoted}?{query}uri=true"


def understood(url: str) -> str:
    """A SQLite URL as the installed SQLAlchemy reads it: before 2.1 it did not unquote a path."""
    path = sqlite_path(url)
    scheme, _, rest = url.partition(":///")
    query = rest.partition("?")[2]
    if path is None or "%" not in url or "uri=true" in query or _unquotes():
        return url
    if "?" in str(path):
        return sqlite_uri(path, query and f"{query}&", scheme)
    return f"{scheme}:///{path}" + (query and f"?{query}")


def sqlite_for_mlflow(path: Path) -> str:
    """The URL of MLflow's own SQLite file. With the plain scheme MLflow would make a folder of the
    quoted name beside the right one."""
    plain = sqlite_url(path)
    return understood(sqlite_url(path, "sqlite+pysqlite")) if "%" in plain else plain


def _unquotes() -> bool:
    """Whether the installed SQLAlchemy unquotes the path of a SQLite URL."""
    from sqlalchemy import make_url

    return make_url("sqlite:///%41").database == "A"


def with_whole_path(url: str) -> str:
    """The URL of a SQLite file with its absolute path."""
    path = sqlite_path(url)
    if path is None or str(path) in (".", ":memory:"):
        return url
    scheme, _, rest = url.partition(":///")
    _, mark, query = rest.partition("?")
    if "uri=true" in query.split("&"):
        return url
    return sqlite_url(path.resolve(), scheme) + mark + query


def with_driver(url: str) -> str:
    """The URL of a database with the installed driver: the default driver of `postgresql://`
    differs between versions of SQLAlchemy."""
    scheme, mark, rest = url.partition("://")
    if scheme not in ("postgres", "postgresql"):
        return understood(url)
    driver = "psycopg2" if find_spec("psycopg") is None and find_spec("psycopg2") else "psycopg"
    return f"postgresql+{driver}{mark}{rest}"
