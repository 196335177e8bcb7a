"""A guard that kills the processes we started once we have ended, in whatever way: it is a process
of its own that waits for our end. The processes it guards run in sessions of their own, so that
signals for us and our process group do not reach them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

# Seconds that killing the guarded processes may take on a busy machine.
END_SECONDS = 20.0


class Guard:
    """Kills sessions of processes: `watch` adds one, started with `start_new_session`."""

    def __init__(self) -> None:
        import subprocess  # not needed by the process this starts, which runs this very file

        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        self._line = self._process.stdin

    def watch(self, leader: int) -> None:
        """Guard the session that `leader` leads. The process must not have been waited for yet."""
        with contextlib.suppress(OSError):  # the guard was killed: go on without it
            self._line.write(f"{leader} {started(leader)}\n".encode())

    def end(self) -> None:
        """Kill what is left of all guarded sessions."""
        from subprocess import TimeoutExpired

        self._line.close()
        try:
            self._process.wait(END_SECONDS)
        except TimeoutExpired:  # the guard goes on without us
            return


def started(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty where there is no such process."""
    return _stat(pid)[1]


def members(session: int) -> list[int]:
    """The processes of a session."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _stat(pid)[0] == str(session)]


def _stat(pid: int) -> tuple[str, str]:
    """The session and the start time of a process; empty strings where there is none."""
    try:
        # The name in brackets may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[3], fields[19]


def main() -> None:
    """Wait until the process that started us has ended, then kill the sessions it named."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    named = [line.decode().split(" ") for line in sys.stdin.buffer.read().splitlines()]
    for leader, start in named:
        # Once a whole session has ended another process may have the number of its leader.
        if started(int(leader)) not in ("", start.strip()):
            continue
        with contextlib.suppress(OSError):  # enough where there is no /proc
            os.killpg(int(leader), signal.SIGKILL)
        for _ in range(3):  # a process may start another one while it is killed
            for pid in members(int(leader)):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
