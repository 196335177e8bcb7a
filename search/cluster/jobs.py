"""Searches on a cluster from a machine outside of it: bitfront's own commands run on the head as
Ray jobs, sent to its dashboard (http://HEAD:8265). The code is sent along, so that both sides have
one version; the searches stay on the head, in its BITFRONT_HOME or ~/bitfront-runs. `ray://`
addresses are in ray_client.py."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.search.config.source import override, read
from bitfront.search.urls import has_secret, know, redacted, sqlite_path
from bitfront.spaces.ready_made import search_file
from bitfront.trainables import own_code
from bitfront.trainables.errors import UserError, did_you_mean, first_line
from bitfront.trainables.own_code.bundles import files_named

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

HOME_THERE = '"${BITFRONT_HOME:-$HOME/bitfront-runs}"'
# Keys of a job's metadata.
SEARCH, HOME = "bitfront_search", "bitfront_home"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
# A command that only reads takes seconds; its start on a busy head may take longer.
CALL_SECONDS = 300.0
# Ray's message while the process that starts jobs is not up yet, and how long that may last.
NO_AGENT = "No available agent"
AGENT_SECONDS = 60.0


def is_remote(address: str | None) -> bool:
    """Whether the address is that of a job server."""
    return address is not None and address.startswith(("http://", "https://"))


def shipped_code() -> list[str]:
    """The folder of the installed package, for Ray's `py_modules`."""
    return [str(resources.files("bitfront"))]


class Head:
    """The head of a cluster, reached through its dashboard."""

    def __init__(self, address: str, ship: bool = True) -> None:
        """With `ship`, jobs bring the code of this installation; else they use that of the head."""
        self.address = address
        self.ship = ship
        self.client = _client(address)

    def submit(self, file: Path, name: str, words: Sequence[str], home: str | None) -> str:
        """Start a bitfront command with its YAML as a job that outlives us; return the job's id."""
        job = f"bitfront-{name}-{secrets.token_hex(3)}"
        with tempfile.TemporaryDirectory() as folder:
            for path, content in sent_files(file, words).items():
                place = Path(folder) / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            command = [*words, "--address", "auto"]
            self._start(
                entrypoint=_entrypoint(command, home),
                submission_id=job,
                runtime_env=self._environment(folder),
                metadata={SEARCH: name, HOME: home or ""},
            )
        return job

    def call(self, words: Sequence[str], home: str | None) -> tuple[int, str]:
        """Run a short bitfront command on the head; return its exit code and what it printed."""
        mark = secrets.token_hex(8)
        columns = shutil.get_terminal_size().columns
        entrypoint = f"echo {mark}; COLUMNS={columns} {_entrypoint(words, home)}"
        job = self._start(entrypoint=entrypoint, runtime_env=self._environment())
        deadline = time.monotonic() + CALL_SECONDS
        while (info := self.client.get_job_info(job)).status.value not in ENDED:
            if time.monotonic() > deadline:
                self.client.stop_job(job)
                raise UserError(f"bitfront {words[0]} took too long on {self.address}")
            time.sleep(0.3)
        lines = self.client.get_job_logs(job).splitlines(keepends=True)
        if f"{mark}\n" not in lines:
            raise UserError(f"{self.address} could not start a command: {info.message}")
        self.client.delete_job(job)
        printed = lines[lines.index(f"{mark}\n") + 1 :]
        # Ray may write the command itself to the log, a little late.
        code = info.driver_exit_code
        if code is None:  # the process that watched the job is gone
            code = 0 if info.status.value == "SUCCEEDED" else 1
        return code, "".join(line for line in printed if mark not in line)

    def _start(self, **job: Any) -> str:
        """Start a job; a head that has just been started needs a while before it takes one."""
        deadline = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return str(self.client.submit_job(**job))
            except RuntimeError as error:
                if NO_AGENT not in str(error):
                    raise
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{self.address} takes no jobs: {NO_AGENT}",
                        "two clusters on one machine need ports of their own: "
                        "ray start --dashboard-agent-listen-port",
                    ) from None
            time.sleep(1)

    def job_of(self, name: str) -> JobDetails:
        """The job that runs a search, else the last one that did."""
        jobs = [j for j in self.client.list_jobs() if SEARCH in (j.metadata or {})]
        mine = [j for j in jobs if j.metadata and j.metadata[SEARCH] == name]
        if not mine:
            known = sorted({(j.metadata or {})[SEARCH] for j in jobs})
            hint = did_you_mean(name, known) if known else "none has been submitted"
            raise UserError(f"no search '{name}' at {self.address}, {hint}")
        return max(mine, key=lambda job: (job.status.value not in ENDED, job.start_time or 0))

    def home_of(self, name: str | None) -> str | None:
        """The home a search was submitted with; None stands for the head's default."""
        if name is None:
            return None
        try:
            return (self.job_of(name).metadata or {}).get(HOME) or None
        except UserError:
            return None

    def log(self, name: str, follow: bool) -> None:
        """Print the output of a search's driver; with `follow` until the driver ends."""
        job = self.job_of(name).submission_id
        assert job is not None
        if not follow:
            sys.stdout.write(self.client.get_job_logs(job))
            return

        async def tail() -> None:
            async for text in self.client.tail_job_logs(job):
                sys.stdout.write(text)
                sys.stdout.flush()

        asyncio.run(tail())

    def _environment(self, folder: str | None = None) -> dict[str, Any]:
        environment: dict[str, Any] = {"working_dir": folder} if folder else {}
        if self.ship:
            environment |= {"py_modules": shipped_code(), "excludes": ["**/__pycache__"]}
        return environment


def run_words(args: Namespace) -> tuple[list[str], Path | None]:
    """The words of a `run`, `resume` or `extend` for the head, and the YAML to send with `run`."""
    if args.verb in ("resume", "extend"):
        more = ["--trials", str(args.trials)] if args.verb == "extend" else []
        for kind in ("ledger", "tracking", "storage"):
            url = getattr(args, kind, None)
            more += [] if url is None else [f"--{kind}", url]
        return secret_free([args.verb, args.search, *more, *_trusting(args)]), None
    file = search_file(args.search)
    words = ["run", file.name]
    words += [word for given in args.set or [] for word in ("--set", given)]
    for option in ("name", "trials", "data_dir", "ledger", "warm_start"):
        value = getattr(args, option)
        words += [] if value is None else [f"--{option.replace('_', '-')}", str(value)]
    ledger = sqlite_path(args.ledger) if args.ledger is not None else None
    if ledger is not None and not ledger.is_absolute():
        raise UserError("--ledger: a job has a folder of its own, give the whole path of the file")
    return secret_free([*words, *_trusting(args)]), file


def _trusting(args: Namespace) -> list[str]:
    return ["--trust"] if getattr(args, "trust", False) else []


def sent_files(file: Path, words: Sequence[str]) -> dict[str, bytes]:
    """The YAML of a search and the code of the user's own that it and the words of the command
    name, by path: they are put into one folder on the head."""
    own_code.look_in(file.absolute().parent)
    source = read(file)
    override(source, [word for before, word in pairwise(words) if before == "--set"])
    return {**files_named(source.data), file.name: file.read_bytes()}


def _entrypoint(words: Sequence[str], home: str | None) -> str:
    where = shlex.quote(home) if home else HOME_THERE
    return f"python -m bitfront.cli {shlex.join(words)} --home {where}"


def _client(address: str) -> JobSubmissionClient:
    try:
        from ray.job_submission import JobSubmissionClient

        client = JobSubmissionClient(address)
    except (ConnectionError, RuntimeError) as error:
        raise UserError(
            f"no Ray dashboard answers at {address}: {first_line(error)}",
            "is the head up (ray start --head), is the port right (8265), is there a tunnel "
            "(ray dashboard cluster.yaml)? A cluster with tokens wants RAY_AUTH_MODE=token",
        ) from None
    for name in ("dashboard.modules.dashboard_sdk", "_private.runtime_env.packaging"):
        logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)  # no line for every package
    return client


def secret_free(words: list[str]) -> list[str]:
    """The words themselves; UserError where one contains a secret, since Ray's dashboard shows the
    command of a job."""
    for word in words:
        know(word)
        if redacted(word) != word or has_secret(word):
            raise UserError(
                f"{redacted(word)}: the secret in it would be shown by Ray's dashboard",
                "leave it out and put it where the head finds it: ~/.pgpass, BITFRONT_LEDGER, "
                "MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN in the head's environment",
            )
    return words
