"""`--address ray://HEAD:10001`, Ray's client. Ray Tune would run on the cluster while the ledger
stays here, so the whole command runs on the head instead, in an actor that lives as long as this
process: its output is printed here, and ctrl-C is sent to it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitfront.search.cluster.remote import tokens
from bitfront.search.cluster.remote.words import check_home, run_words, sent_files, shipped_code
from bitfront.search.submission import VARIABLE, Submission, sender
from bitfront.trainables.errors import UserError, first_line

SCHEME = "ray://"
POLL_SECONDS = 0.5
ATTEMPTS = 3
# How long the server may take to answer whether it takes our token.
GREETING_SECONDS = 20.0


def is_client(address: str | None) -> bool:
    """Whether the address is that of a Ray Client server."""
    return address is not None and address.startswith(SCHEME)


def dashboard_of(address: str) -> str:
    """The address at which short commands reach the same head: its host, with Ray's usual port."""
    host, _, port = address.removeprefix(SCHEME).rpartition(":")
    return f"http://{host if host and port.isdigit() else address.removeprefix(SCHEME)}:8265"


class CommandThere:
    """An actor on the head that runs a bitfront command as its child process."""

    def __init__(self, words: Sequence[str], files: Mapping[str, bytes], sent: str) -> None:
        """`sent` is the text of the sender's `Submission`."""
        import ray

        context = ray.get_runtime_context()
        self.folder = folder = Path(tempfile.mkdtemp(prefix="bitfront-"))
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        home = os.environ.get("BITFRONT_HOME") or os.path.expanduser("~/bitfront-runs")
        # The workers of the command get the code that was sent with this actor.
        job = json.dumps({"runtime_env": dict(context.runtime_env)})
        command = [sys.executable, "-u", "-m", "bitfront.cli", *words]
        known = {"RAY_JOB_CONFIG_JSON_ENV_VAR": job, "BITFRONT_HOME": home, VARIABLE: sent}
        self.printed = folder / "output"
        with self.printed.open("w") as output:
            self.process = subprocess.Popen(
                [*command, "--address", context.gcs_address],
                cwd=folder,
                env={**os.environ, **known},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def read(self, start: int) -> tuple[str, int | None]:
        """What was printed after the first `start` characters, and the exit code once the command
        has ended. It can be asked again: a ctrl-C here loses the answer, not the output."""
        code = self.process.poll()
        return self.printed.read_text(encoding="utf-8")[start:], code

    def clean(self) -> None:
        """Delete the files of the command, which has ended and whose output was read."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGTERM)  # Ray's processes block SIGINT


def run_there(args: Namespace) -> int:
    """Run the verb with its options on the head; return its exit code."""
    words, path = run_words(args)
    files = sent_files(path, words) if path is not None else {}
    for flag in ("quiet", "dry_run", "json"):
        if getattr(args, flag, False):
            words.append(f"--{flag.replace('_', '-')}")
    return command_there(args.address, words, args.home, files)


def command_there(
    address: str, words: list[str], home: str | None, files: Mapping[str, bytes] | None = None
) -> int:
    """Run a bitfront command on the head, in a folder with these files, and print what it prints;
    its exit code."""
    check_home(home)
    if home:
        words = [*words, "--home", home]
    import ray

    code: dict[str, Any] = {"py_modules": shipped_code(), "excludes": ["**/__pycache__"]}
    try:
        _greet(address)
        _connect(address, code)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"no Ray client server answers at {address}: {first_line(error)}",
            "ray start --head listens on port 10001; python and ray must be of the same version "
            "there; or send the search away: bitfront submit --address http://HEAD:8265",
        ) from None
    try:
        options = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
        sent = Submission(dashboard_of(address), sender(), home=home or "").text()
        actor = ray.remote(**options)(CommandThere).remote(words, files or {}, sent)  # type: ignore[call-overload]
        return _follow(actor)
    finally:
        ray.shutdown()


def _greet(address: str) -> None:
    """Raise where our token is refused: Ray would go on trying, and then say nothing of it."""
    import grpc
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc
    from ray.exceptions import AuthenticationError

    with init_grpc_channel(address.removeprefix(SCHEME)) as channel:
        service = ray_client_pb2_grpc.RayletDriverStub(channel)
        question = ray_client_pb2.KVListRequest(prefix=b"bitfront-greeting")  # type: ignore[attr-defined]
        try:
            service.KVList(question, timeout=GREETING_SECONDS)
        except AuthenticationError:  # there is no token here
            raise tokens.refused(address, tokens.MISSING) from None
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                raise tokens.refused(address) from None


def _connect(address: str, code: dict[str, Any]) -> None:
    """Connect, in at most ATTEMPTS attempts: Ray starts a process per client, which may fail on a
    busy head."""
    import ray

    for attempt in range(ATTEMPTS):
        try:
            ray.init(address, runtime_env=code, logging_level=logging.ERROR, log_to_driver=False)
            return
        except ConnectionError:
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(5 * POLL_SECONDS)


def _follow(actor: object) -> int:
    """Print the output until the command ends, and return its exit code. A ctrl-C is passed on."""
    import ray

    shown = 0
    while True:
        try:
            text, code = ray.get(actor.read.remote(shown))  # type: ignore[attr-defined]
            sys.stdout.write(text)
            sys.stdout.flush()
            shown += len(text)
            if code is not None:
                ray.get(actor.clean.remote())  # type: ignore[attr-defined]
                return int(code)
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            ray.get(actor.interrupt.remote())  # type: ignore[attr-defined]
