"""The service on the head of a cluster that runs short commands (`status`, `front`, `stop`) for
people outside of it. It is a Ray job that starts with the first search, keeps everything they need
imported, and forks a process per command; it ends when no search runs and nobody asks. What it may
run, and how, is passed in by the room above."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bitfront.search import submission
from bitfront.search.cluster.remote.mailbox import Answer, Request, answer_file, packed
from bitfront.search.homes import searches
from bitfront.trainables.files import discard, write_atomically

POSTMAN = "bitfront.search.cluster.remote.postman"
# The service ends after so long without a request or a running search: a driver that was just
# submitted takes a while before it holds its lock.
IDLE_SECONDS = 180.0
SEARCHES_LOOK_SECONDS = 15.0
# An answer is fetched at once, or never.
ANSWER_LIVES_SECONDS = 60.0
WAIT_SECONDS = 0.05
# Files that a command wrote are sent up to this size: recipes.
MOST_BYTES = 5_000_000


class Running:
    """A command in its own process, with a folder for its output and its files."""

    def __init__(self, request: Request, run: Callable[[list[str]], int]) -> None:
        self.request = request
        self.folder = Path(tempfile.mkdtemp(prefix="bitfront-"))
        self.work = self.folder / "work"
        self.work.mkdir()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                code = self._run(run)
            finally:
                with contextlib.suppress(OSError, ValueError):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)

    def _run(self, run: Callable[[list[str]], int]) -> int:
        os.setsid()
        os.chdir(self.work)
        os.environ[submission.VARIABLE] = self.request.submission
        os.environ["COLUMNS"] = str(self.request.columns)
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, number)
            os.close(file)
        return run(self.request.words)

    def ended(self) -> Answer | None:
        """The answer, once the command has ended."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        files = {}
        for path in sorted(self.work.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
                files[str(path.relative_to(self.work))] = path.read_text(errors="replace")
        out, err = (self._said(name) for name in ("out", "err"))
        discard(self.folder)
        return Answer(os.waitstatus_to_exitcode(status), out, err, files)

    def _said(self, name: str) -> str:
        file = self.folder / name
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


class Service:
    """Answers requests until nobody needs it any more."""

    def __init__(self, name: str, run: Callable[[list[str]], int]) -> None:
        self.run = run
        self.postman = subprocess.Popen(
            [sys.executable, "-m", POSTMAN, name], stdout=subprocess.PIPE, bufsize=0
        )
        self._part = b""
        # Where Ray keeps the output of a job it serves log files from.
        self.logs = Path(os.readlink("/proc/self/fd/1")).parent
        self.running: list[Running] = []
        self.answers: dict[Path, float] = {}
        self.needed = self.looked = time.monotonic()

    def serve(self) -> int:
        """Answer until the service has been idle for long enough, or Ray is gone."""
        os.umask(0o077)  # answers are for those who reach the dashboard, not for this machine
        try:
            while not self._idle():
                if not self._read():
                    return 0
                self._deliver()
            return 0
        finally:
            self.postman.kill()
            for file in self.answers:
                file.unlink(missing_ok=True)

    def _read(self) -> bool:
        """Start the commands of new requests; False where the postman is gone."""
        assert self.postman.stdout is not None
        seconds = WAIT_SECONDS if self.running else 1.0
        if not select.select([self.postman.stdout], [], [], seconds)[0]:
            return True
        found = self.postman.stdout.read(65536)
        if not found:
            return False
        *lines, self._part = (self._part + found).split(b"\n")
        for line in lines:
            self.needed = time.monotonic()
            self.running.append(Running(Request(**json.loads(line)), self.run))
        return True

    def _deliver(self) -> None:
        """Write the answers of commands that have ended, and delete old ones."""
        for each in list(self.running):
            answer = each.ended()
            if answer is None:
                continue
            file = self.logs / answer_file(each.request.id)
            write_atomically(file, packed(answer).decode())
            self.answers[file] = self.needed = time.monotonic()
            self.running.remove(each)
        for file, written in list(self.answers.items()):
            if time.monotonic() - written > ANSWER_LIVES_SECONDS:
                file.unlink(missing_ok=True)
                del self.answers[file]

    def _idle(self) -> bool:
        now = time.monotonic()
        if self.running or now - self.looked < SEARCHES_LOOK_SECONDS:
            return False
        self.looked = now
        if any(folder.running for folder in searches(None)):
            self.needed = now
        return now - self.needed > IDLE_SECONDS
