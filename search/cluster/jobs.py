"""Searches on a cluster from a machine outside of it: bitfront's own commands run on the head, sent
to its dashboard (http://HEAD:8265). Drivers are Ray jobs; short commands are answered by a service
(`remote`). The code is sent along, so that both sides have one version; the searches stay on the
head, in its BITFRONT_HOME or ~/bitfront-runs. `ray://` addresses are in ray_client.py."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.search.cluster.remote.http import Dashboard
from bitfront.search.cluster.remote.mailbox import Answer, Request, ServiceGoneError, ask
from bitfront.search.cluster.remote.words import (
    check_home,
    code_digest,
    secret_free,
    sent_files,
    shipped_code,
)
from bitfront.search.submission import PASSED, VARIABLE, WAITING, Submission, sender
from bitfront.trainables.errors import UserError, first_line

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

HOME_THERE = '"${BITFRONT_HOME:-$HOME/bitfront-runs}"'
# Modules that run on the head.
CLI, SERVICE = "bitfront.cli", "bitfront.head_service"
# Answered by the service: where a search is, and the job that had the last turn at it.
WHERE = "where"
# Keys of a job's metadata.
SEARCH, HOME, OWNER = "bitfront_search", "bitfront_home", "bitfront_owner"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
LOOK_SECONDS = 0.3
ATTEMPTS = 3
# How long a command on the head may take, whose start may be slow on a busy one.
CALL_SECONDS = 300.0
# How long a driver may take for its checks before we leave it alone.
BEGIN_SECONDS = 300.0
# What Ray says of a job before its driver says anything: our command with all its variables.
OF_RAY = ("Job has not started", "Running entrypoint for job")
# Lines of a driver that ended without a message of ours.
MOST_LINES = 15
# Part of what Ray says when it ends a process for the memory of its node: a page with a table.
OUT_OF_MEMORY = "the out of memory issue"
NO_MEMORY = [
    "error: Ray ended the driver, since the head is short of memory",
    "  stop another search there, or take a larger machine: a driver needs 1 to 2 GB",
]
SERVICE_HINT = "its log: ray job logs, or Ray's dashboard"
# Ray's message while the process that starts jobs is not up yet, and how long that may last.
NO_AGENT = "No available agent"
AGENT_SECONDS = 60.0


@dataclass(frozen=True)
class Begun:
    """What became of a submitted search: running, waiting for nodes or places, preparing still,
    refused, or ended already."""

    state: str
    code: int
    lines: list[str]
    """of its log that say so, after its warnings"""


class Head:
    """The head of a cluster, reached through its dashboard."""

    def __init__(self, address: str, ship: bool = True) -> None:
        """With `ship`, jobs bring the code of this installation; else they use that of the head."""
        self.address = address
        self.ship = ship
        self.dashboard = Dashboard(address)

    def submit(self, words: Sequence[str], name: str, home: str | None, file: Path | None) -> str:
        """Start a bitfront command, with its YAML where it has one, as a job that outlives us, and
        the service that tells about it; return the job's id."""
        check_home(home)
        jobs = self.dashboard.jobs()
        job = f"bitfront-{name}-{secrets.token_hex(3)}"
        sent = self._submission(jobs, home, job)
        words = [*words, *(["--home", home] if home else [])]
        with tempfile.TemporaryDirectory() as folder:
            for path, content in (sent_files(file, words) if file is not None else {}).items():
                place = Path(folder) / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            self._start(
                entrypoint=_entrypoint(CLI, [*words, "--address", "auto"], sent),
                submission_id=job,
                runtime_env=self._environment(folder),
                metadata={SEARCH: name, HOME: home or "", OWNER: sent.owner},
            )
        if self._service(jobs) is None:
            self._start_service(jobs)
        return job

    def begun(self, job: str, told: Callable[[str], None]) -> Begun:
        """Wait until the driver of a submitted search has passed its checks, waits for nodes or has
        ended. `told` gets its last line meanwhile."""
        deadline = time.monotonic() + BEGIN_SECONDS
        while True:
            info = self.dashboard.job(job)
            lines = [line for line in self.dashboard.log(job).splitlines() if line.strip()]
            if info is None or info["status"] in ENDED:
                return _ended(info, lines)
            last = lines[-1] if lines else str(info.get("message") or "")
            if PASSED in lines:
                waits = [line for line in lines if any(words in line for words in WAITING)]
                warnings = [line for line in lines if line.startswith("warning: ")]
                return Begun("waiting" if waits else "running", 0, [*warnings, *waits])
            if time.monotonic() > deadline:
                return Begun("preparing", 0, [last])
            if not last.startswith(OF_RAY):
                told(last)
            time.sleep(LOOK_SECONDS)

    def ask(self, words: Sequence[str], home: str | None) -> Answer:
        """Have the service on the head run a short command; it is started where it does not run."""
        check_home(home)
        for _ in range(ATTEMPTS):
            jobs = self.dashboard.jobs()
            service = self._service(jobs) or self._start_service(jobs, wait=True)
            given = [*words, *(["--home", home] if home else [])]
            request = Request(given, self._submission(jobs, home).text(), _columns())
            try:
                return ask(self.dashboard, service, request)
            except ServiceGoneError:  # it had nothing to do any more
                continue
        raise UserError(f"{self.address} does not answer bitfront {words[0]}", SERVICE_HINT)

    def call(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a command that needs Ray on the head as a job of its own; return its exit code and
        what it printed."""
        mark = secrets.token_hex(8)
        sent = self._submission(self.dashboard.jobs(), None)
        command = f"export COLUMNS={_columns()}; {_entrypoint(CLI, words, sent)}"
        # The job itself succeeds: Ray lists failed ones for as long as the head lives.
        entrypoint = f"echo {mark}; ({command}); echo {mark} $?"
        job = self._start(entrypoint=entrypoint, runtime_env=self._environment())
        deadline = time.monotonic() + CALL_SECONDS
        while (info := self.dashboard.job(job) or {"status": "FAILED"})["status"] not in ENDED:
            if time.monotonic() > deadline:
                raise UserError(f"bitfront {words[0]} took too long on {self.address}")
            time.sleep(LOOK_SECONDS)
        # Ray may write the command itself to the log, a little late.
        parts = re.split(rf"^{mark}(?: (\d+))?\n", self.dashboard.log(job), flags=re.MULTILINE)
        if len(parts) < 5:
            told = info.get("message") or "it ended before it began"
            raise UserError(f"{self.address} could not start a command: {told}")
        self._forget(job)
        return int(parts[3]), "".join(x for x in parts[2].splitlines(True) if mark not in x)

    def log(self, name: str, home: str | None, follow: bool) -> None:
        """Print what the driver of a search printed in its last turn, or what a job printed that is
        given by its id; with `follow` until the driver ends."""
        check_home(home)
        job = self._job_of(name, home)
        if not follow:
            sys.stdout.write(self.dashboard.log(job))
            return
        client = self._client()

        async def tail() -> None:
            async for text in client.tail_job_logs(job):
                sys.stdout.write(text)
                sys.stdout.flush()

        asyncio.run(tail())

    def _job_of(self, name: str, home: str | None) -> str:
        """The job whose output is that of a search: the one that had the last turn at it. A job
        that was refused had none, and is not taken for it."""
        jobs = {job["submission_id"]: job for job in self.dashboard.jobs()}
        if name in jobs:
            return name
        answer = self.ask([WHERE, name], home)
        if answer.code == 0:
            job = str(json.loads(answer.out)["job"] or "")
            if job in jobs:
                return job
            where = f"job {job}, which Ray has forgotten" if job else "a terminal, not in a job"
            raise UserError(f"search '{name}' had its last turn in {where}: there is no log")
        sent = [j for j in jobs.values() if (j.get("metadata") or {}).get(SEARCH) == name]
        if not sent:
            raise UserError(answer.err.strip().removeprefix("error: ").split("\n")[0])
        last = max(sent, key=lambda job: (job["status"] not in ENDED, job.get("start_time") or 0))
        if last["status"] not in ENDED:  # it has not passed its checks yet
            return str(last["submission_id"])
        raise UserError(
            f"search '{name}' never began at {self.address}",
            f"what its last job said: bitfront logs {last['submission_id']} "
            f"--address {self.address} (sent by {(last['metadata'] or {}).get(OWNER, '?')})",
        )

    def _submission(
        self, jobs: Sequence[dict[str, Any]], home: str | None, job: str = ""
    ) -> Submission:
        homes = dict.fromkeys((each.get("metadata") or {}).get(HOME) or "" for each in jobs)
        secret_free([self.address])
        given = tuple(each for each in homes if each)
        return Submission(self.address, sender(), job, home or "", given)

    def _service(self, jobs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """The service with our code, where it runs."""
        name = self._service_name()
        for job in jobs:
            if job["submission_id"] == name and job["status"] == "RUNNING":
                return job if job.get("driver_node_id") else None
        return None

    def _service_name(self) -> str:
        return f"bitfront-service-{code_digest() if self.ship else 'installed'}"

    def _start_service(self, jobs: Sequence[dict[str, Any]], wait: bool = False) -> dict[str, Any]:
        """Start the service, or let somebody else do who is doing so now."""
        name = self._service_name()
        states = {job["submission_id"]: job["status"] for job in jobs}
        if states.get(name) in ENDED:
            self._forget(name)
        if states.get(name) not in ("PENDING", "RUNNING"):
            try:
                self._start(
                    entrypoint=_entrypoint(SERVICE, [name], self._submission(jobs, None)),
                    submission_id=name,
                    runtime_env=self._environment(),
                )
            except RuntimeError as error:
                if "already exists" not in str(error):
                    raise
        deadline = time.monotonic() + CALL_SECONDS
        while wait:
            info = self.dashboard.job(name)
            if info is not None and info["status"] == "RUNNING" and info.get("driver_node_id"):
                return info
            if info is None or info["status"] in ENDED or time.monotonic() > deadline:
                told = (info or {}).get("message") or "it ended at once"
                raise UserError(f"{self.address} could not start a command: {told}", SERVICE_HINT)
            time.sleep(LOOK_SECONDS)
        return {}

    def _forget(self, job: str) -> None:
        """Take an ended job off Ray's list. Ray may write its end there once more."""
        for _ in range(3):
            self.dashboard.delete(job)
            time.sleep(LOOK_SECONDS)
            if self.dashboard.job(job) is None:
                return

    def _client(self) -> JobSubmissionClient:
        """Ray's own client, for what it does better: packages, and logs that go on."""
        self.dashboard.jobs()  # a wrong token is said in one line
        return _client(self.address)

    def _start(self, **job: Any) -> str:
        """Start a job; a head that has just been started needs a while before it takes one."""
        client = self._client()
        deadline = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return str(client.submit_job(**job))
            except RuntimeError as error:
                if NO_AGENT not in str(error):
                    raise
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{self.address} takes no jobs: {NO_AGENT}",
                        "Ray there is still starting, or only a part of it came up: try again in a "
                        "minute, else start it again (ray up); two clusters on one machine need "
                        "ports of their own: ray start --dashboard-agent-listen-port",
                    ) from None
            time.sleep(1)

    def _environment(self, folder: str | None = None) -> dict[str, Any]:
        environment: dict[str, Any] = {"working_dir": folder} if folder else {}
        if self.ship:
            environment |= {"py_modules": shipped_code(), "excludes": ["**/__pycache__"]}
        return environment


def _ended(info: dict[str, Any] | None, lines: list[str]) -> Begun:
    """How a driver has ended that did not begin: with its error, or because nothing was left to
    do."""
    if info is None:
        return Begun("refused", 1, ["the job is not on Ray's list any more"])
    code = info.get("driver_exit_code")
    if code is None:  # the process that watched the job is gone
        code = 0 if info["status"] == "SUCCEEDED" else 1
    if code < 0:  # a signal has ended it: as a shell says so
        code = 128 - code
    if PASSED in lines or code == 0:
        return Begun("ended", code, lines)
    errors = [n for n, line in enumerate(lines) if line.startswith("error: ")]
    told = lines[errors[-1] :] if errors else lines[-MOST_LINES:]
    if not errors and OUT_OF_MEMORY in "\n".join([*lines, str(info.get("message") or "")]):
        told = NO_MEMORY
    return Begun("refused", code, told or [str(info.get("message") or "")])


def _columns() -> int:
    """The width of our terminal; 0 where a pipe takes lines of any length."""
    bounded = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return shutil.get_terminal_size().columns if bounded else 0


def _entrypoint(module: str, words: Sequence[str], sent: Submission) -> str:
    home = f"export BITFRONT_HOME={HOME_THERE} {VARIABLE}={shlex.quote(sent.text())}"
    return f"{home}; exec python -m {module} {shlex.join(words)}"


def _client(address: str) -> JobSubmissionClient:
    try:
        from ray.job_submission import JobSubmissionClient

        client = JobSubmissionClient(address)
    except (ConnectionError, RuntimeError) as error:
        raise UserError(
            f"no Ray dashboard answers at {address}: {first_line(error)}",
            "is the head up (ray start --head), is the port right (8265), is there a tunnel "
            "(ray dashboard cluster.yaml)?",
        ) from None
    for name in ("dashboard.modules.dashboard_sdk", "_private.runtime_env.packaging"):
        logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)  # no line for every package
    return client
