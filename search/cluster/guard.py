"""What we start ends with us, however we end: a process of its own waits for our end and kills
what is left then. What it watches over lives in sessions of its own, where signals meant for us and
our group do not come."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

# How long the end of what is left may take on a busy machine.
END_SECONDS = 20.0


class Guard:
    """`watch` a process that was started with `start_new_session`; `end` all of them."""

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
        """The session of a process, which must not have ended (or been waited for) yet."""
        with contextlib.suppress(OSError):  # somebody killed the guard: Ray and we end as we can
            self._line.write(f"{leader} {started(leader)}\n".encode())

    def end(self) -> None:
        """Kill what is left of all sessions."""
        from subprocess import TimeoutExpired

        self._line.close()
        try:
            self._process.wait(END_SECONDS)
        except TimeoutExpired:  # it has been told, and goes on without us
            return


def started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty where there is none."""
    return _stat(pid)[1]


def members(session: int) -> list[int]:
    """The processes of a session."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _stat(pid)[0] == str(session)]


def _stat(pid: int) -> tuple[str, str]:
    """Session and beginning of a process."""
    try:
        # The name in brackets may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[3], fields[19]


def main() -> None:
    """Wait until whoever started us has gone, then kill the sessions we were told of."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = [line.decode().split(" ") for line in sys.stdin.buffer.read().splitlines()]
    for leader, start in told:
        # The number of a leader is free for others once its whole session has ended.
        if started(int(leader)) not in ("", start.strip()):
            continue
        with contextlib.suppress(OSError):  # all there is to do where there is no /proc
            os.killpg(int(leader), signal.SIGKILL)
        for _ in range(3):  # what is killed may just be starting something
            for pid in members(int(leader)):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
