"""Processes of a test: waiting for them, finding them, ending them by process id."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.warm import FOLDER
from testbed.warm_server import ENVIRONMENTS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def wait_for(condition: Callable[[], Any], seconds: float, what: str, process: Any = None) -> None:
    """Wait until the condition holds; an AssertionError after `seconds`, or when `process` fails.
    The message contains the output of `process`, which is aborted."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        if process is not None and process.poll() not in (None, 0):
            break
        time.sleep(0.2)
    said = ""
    if process is not None:
        process.send_signal(signal.SIGABRT)
        said = process.communicate(timeout=20)[0]
    raise AssertionError(f"waited up to {seconds} s for {what}\n{said}")


def end(process: subprocess.Popen[Any], sign: int = signal.SIGKILL) -> None:
    """End a process and the processes of its session."""
    if process.poll() is None:
        os.killpg(process.pid, sign)
    process.wait(30)


def processes(token: str) -> dict[int, str]:
    """The titles of the running processes whose environment contains `token`, by process id."""
    found = {}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() not in _environment(proc):
                continue
            title = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if title:
            found[int(proc.name)] = title
    return found


def _environment(proc: Path) -> bytes:
    """The environment of a process; of one that testbed/warm.py has forked also its own, which
    /proc does not know."""
    found = (proc / "environ").read_bytes()
    warm = re.search(rb"(?:^|\0)" + FOLDER.encode() + rb"=([^\0]*)", found)
    if warm is not None:
        with suppress(FileNotFoundError):
            found += b"\0" + Path(os.fsdecode(warm[1]), ENVIRONMENTS, proc.name).read_bytes()
    return found


def kill(pid: int) -> None:
    """End a process with SIGKILL, if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class CannotStrikeError(Exception):
    """A fault cannot be produced on this machine. Any other error of a search under faults is a
    defect of bitfront."""
