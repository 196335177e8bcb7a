"""Ports for our web pages: whether one is free, and which process listens on it. The servers are in
`dashboards.pages.server` and `search.tracking.server`."""

from __future__ import annotations

import socket
from pathlib import Path

from bitfront.search.cluster.guard import members
from bitfront.trainables.errors import UserError

LISTENING = "0A"
# The names by which only this machine is reached.
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_free(host: str, port: int) -> None:
    """Raise UserError where the address is taken; its hint names a port that is free."""
    try:
        _bind(host, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        other = _free_port_after(host, port)
        hint = f"another port: --port {other}" if other is not None else None
        raise UserError(f"cannot listen on {host}:{port}: {reason}", hint) from None


def first_free(host: str, port: int) -> int:
    """This port, or where it is taken the next one that is free; itself where none is."""
    try:
        return _bind(host, port)
    except (OSError, OverflowError):
        return _free_port_after(host, port) or port


def free_port(host: str) -> int:
    """A port that is free."""
    return _bind(host, 0)


def url_of(host: str, port: int) -> str:
    """The URL of a page; an IPv6 address gets brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listens_in_session(leader: int, port: int) -> bool | None:
    """Whether a process of this session listens on the port; None where that cannot be found
    out."""
    sockets = _listening_sockets(port)
    if sockets is None:
        return None
    return any(sockets & _open_sockets(pid) for pid in members(leader))


def _bind(host: str, port: int) -> int:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _free_port_after(host: str, port: int) -> int | None:
    for other in range(port + 1, min(port + 50, 65536)):
        try:
            return _bind(host, other)
        except OSError:
            continue
    return None


def _listening_sockets(port: int) -> set[str] | None:
    """The sockets that listen on a port, by their names in /proc: `socket:[INODE]`."""
    found = set()
    try:
        for name in ("tcp", "tcp6"):
            table = Path("/proc/net", name)
            for line in table.read_text().splitlines()[1:] if table.exists() else ():
                row = line.split()
                if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{row[9]}]")
    except OSError:
        return None
    return found if Path("/proc/net/tcp").exists() else None


def _open_sockets(pid: int) -> set[str]:
    found = set()
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            found.add(str(file.readlink()))
    except OSError:  # the process has ended, or the file was closed
        pass
    return found
