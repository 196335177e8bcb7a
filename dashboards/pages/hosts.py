"""Which requests a page answers: those that name its own host. A site whose name was made to
resolve to this machine (DNS rebinding) sends that name, a page of another origin sends its origin;
both get 403. WSGI, standard library only."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from bitfront.search.ports import LOOPBACK

EVERYWHERE = ("0.0.0.0", "::", "")
READING = ("GET", "HEAD", "OPTIONS")

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def guarded(app: App, host: str, more: Sequence[str] = ()) -> App:
    """The app for requests to loopback, to `host`, on which it listens, and to the names in `more`.
    An app that listens on all addresses also answers to the names of this machine and to any IP
    address: DNS rebinding needs a name."""
    names = {name.lower().strip("[]") for name in (*LOOPBACK, host, *more)} - {*EVERYWHERE}
    if host in EVERYWHERE:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        asked = environ.get("HTTP_HOST", "")
        name = _name(asked)
        if name not in names and not (host in EVERYWHERE and _is_number(name)):
            return _refused(start, f"this page is not called {asked!r}; see --allow-host")
        if environ.get("REQUEST_METHOD") not in READING and not _is_own(environ, asked):
            return _refused(start, "this page takes nothing from a page of another origin")
        return app(environ, start)

    return answer


def _name(host: str) -> str:
    """The host of `NAME`, `NAME:PORT` or `[::1]:PORT`; empty where it is none of these."""
    try:
        found = urlsplit(f"//{host}")
        _ = found.port
        whole = found.netloc == host and "@" not in host
        return (found.hostname or "") if whole else ""
    except ValueError:
        return ""


def _is_number(name: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_own(environ: dict[str, Any], asked: str) -> bool:
    """Whether a request comes from the page itself. Browsers send the origin of a page with every
    request that changes something; other programs need not."""
    if environ.get("HTTP_SEC_FETCH_SITE", "same-origin") not in ("same-origin", "none"):
        return False
    origin = environ.get("HTTP_ORIGIN")
    return origin is None or urlsplit(origin).netloc.lower() == asked.lower()


def _refused(start: Callable[..., Any], why: str) -> Iterable[bytes]:
    """The answer 403 with one line of text."""
    body = f"{why}\n".encode("ascii", "replace")
    head = [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))]
    start("403 Forbidden", head)
    return [body]
