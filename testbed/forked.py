"""Bitfront commands that are forked from a process which has imported torch, Ray and MLflow: every
one is a process of its own, and starts in a tenth of a second instead of five. What happens while a
driver imports is tested with commands that are started in the usual way."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "torch",
    "mlflow",
    "ray.tune",
    "bitfront.cli",
    "bitfront.verbs.launch",
    "bitfront.search.cluster.tuner",
    "bitfront.search.tracking.mirror",
    "bitfront.trainables.training.loop",
)


class Forked:
    """A running command, with the methods of `subprocess.Popen` that tests need."""

    def __init__(self, forks: Forks, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log
        self.returncode: int | None = None
        self._forks = forks
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("bitfront", timeout or 0)
            os.close(self._ended)
            self.returncode = os.waitstatus_to_exitcode(self._forks.ask({"wait": self.pid}))
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


class Forks:
    """The process with the imports, which forks a command for every request."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self.commands = folder, 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testbed.forked"],
            cwd=Path(__file__).parent.parent,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def ask(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def start(
        self,
        words: tuple[str, ...],
        folder: Path,
        env: dict[str, str],
        terminal: str | None = None,
        ignored: tuple[int, ...] = (),
        first: str = "",
    ) -> Forked:
        """Start `bitfront WORDS` in `folder`, in a session of its own. `terminal` is the device it
        is started at, instead of a log; `ignored` are signals that whoever starts it ignores;
        `first` is code that it runs before."""
        self.commands += 1
        log = self.folder / f"command{self.commands}.log"
        log.touch()
        request: dict[str, Any] = {"words": words, "folder": str(folder), "env": env}
        request |= {"first": first, "ignored": ignored, "out": terminal or str(log)}
        return Forked(self, self.ask(request), log)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def forks(folder: Path, env: dict[str, str]) -> Iterator[Forks]:
    """A process that forks commands, whose output is in `folder`; `env` is their environment, to
    which every one may add."""
    server = Forks(folder, env)
    try:
        yield server
    finally:
        server.end()


def serve() -> int:
    """Answer requests: fork a command, or wait for one."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # else a collection in a forked process copies every page
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitpid(request["wait"], 0)[1]
        else:
            answer = os.fork()
            if answer == 0:
                _end(_run(**request))
        print(answer, flush=True)
    return 0


def _end(code: int) -> NoReturn:
    """End a forked process as Python would, without freeing what was there before the fork: Triton
    would print that objects are left."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(
    words: list[str], folder: str, env: dict[str, str], out: str, ignored: list[int], first: str
) -> int:
    from bitfront import cli

    os.setsid()
    os.chdir(folder)
    os.environ.update(env)  # what imports have set is kept
    # The first terminal that the leader of a session opens is its own.
    output = os.open(out, os.O_RDWR | (0 if out.startswith("/dev/") else os.O_APPEND))
    for number in (0, 1, 2):
        os.dup2(output, number)
    os.close(output)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    sys.argv = [cli.__file__, *words]
    exec(first, {})
    return cli.main()


if __name__ == "__main__":
    sys.exit(serve())
