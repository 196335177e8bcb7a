"""Python processes that are forked from one which has imported torch, Ray and MLflow. `commands` is
a folder with `python`, `bitfront` and, for `jupyter execute`, `jupyter`; whoever calls them, also
Ray when it starts its workers, gets a process of its own with the arguments, files, folder and
environment it gave, in a tenth of a second instead of five. What a fresh interpreter does (how fast
it starts, what it imports, from where) is tested with a fresh one. `/proc/PID/environ` stays that
of the process with the imports; `processes` of testbed/rig knows the other one too."""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from testbed.warm_client import ask
from testbed.warm_server import COMMAND

# In the environment that /proc shows of every process that was forked.
FOLDER = "BITFRONT_TESTBED_WARM"
CLIENT = Path(__file__).parent / "warm_client.py"
# `ray` of a fresh Python, which starts its workers with another one.
RAY = """
import sys

sys.executable = sys.argv.pop(1)
from ray.scripts.scripts import main

sys.exit(main())
"""


@cache
def commands() -> Path:
    """A folder for the front of PATH, with those commands. It is made at the first call;
    it and the processes that were forked end with this process."""
    folder = tempfile.TemporaryDirectory(prefix="warm")
    place = Path(folder.name)
    for name in ("python", "python3", "bitfront", "jupyter"):
        script = place / name
        script.write_text(f"#!{sys.executable} -IS\n{CLIENT.read_text()}")
        script.chmod(0o755)
    with (place / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "testbed.warm_server", folder.name],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "OMP_NUM_THREADS": "1", FOLDER: folder.name},
            stdin=subprocess.PIPE,  # which ends however this process ends
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )

    def leave() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(leave)
    assert server.stdout is not None
    assert server.stdout.readline() == b"warm\n", (place / "log").read_text()
    return place


def python() -> str:
    """The Python that is forked."""
    return str(commands() / "python")


def ray() -> list[str]:
    """The words of a `ray` whose workers are forked."""
    return [sys.executable, "-c", RAY, python()]


def environment() -> dict[str, str]:
    """The environment of a user whose first `python` and `bitfront` are those that are forked,
    before those of this environment."""
    path = [str(commands()), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(path)}


class Forked:
    """A running command, with the methods of `subprocess.Popen` that tests need; its process is
    the leader of a session."""

    def __init__(self, server: socket.socket, log: Path) -> None:
        self._server, self._lines = server, server.makefile()
        self.pid, self.log = int(self._lines.readline()), log
        self.returncode: int | None = None

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("bitfront", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._lines.readline() or 9))
            self._server.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end; what was printed."""
        self.wait(timeout)
        return self.log.read_text(), None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    words: Sequence[str],
    folder: Path,
    env: dict[str, str],
    terminal: str | None = None,
    ignored: Sequence[int] = (),
    first: str = "",
    forks: bool = False,
) -> Forked:
    """Start `bitfront WORDS` in `folder`, without a command between. `terminal` is the device it is
    started at, instead of a log; `ignored` are signals that whoever starts it ignores; `first` is
    code that it runs before; with `forks` also the Python that it starts itself is forked."""
    log = Path(tempfile.mkstemp(prefix="command", suffix=".log", dir=commands())[1])
    request = {
        "words": ["-c", f"{first}\n{COMMAND}", *words] if first else ["bitfront", *words],
        "folder": str(folder),
        "umask": 0o022,
        "env": env,
        "ignored": list(ignored),
        "blocked": [],
        "terminal": terminal,
        "python": None if forks else sys.executable,
        "leads": False,
    }
    server = socket.socket(socket.AF_UNIX)
    server.connect(str(commands() / "command"))
    with log.open("a+") as output:
        ask(server, request, [output.fileno()] * 3)
    return Forked(server, log)
