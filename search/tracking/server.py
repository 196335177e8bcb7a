"""The MLflow UI, opened on a search: on the user's tracking server, or on one started here, which
listens on this machine only unless another host is given."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bitfront.search import named
from bitfront.search.cluster.guard import Guard
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ports import LOOPBACK, check_free, free_port, listens_in_session, url_of
from bitfront.search.results.stored import newest_readable, stored_config
from bitfront.search.session.interrupts import held_back
from bitfront.search.tracking.notes import REPORT
from bitfront.search.tracking.store import find_runs, keeps_artifacts, tracking_uri
from bitfront.search.tracking.views import TRAINING
from bitfront.search.urls import without_secrets
from bitfront.trainables.errors import UserError

START_SECONDS = 180
# Not passed on: a database made by somebody else may name a server that would be sent these.
LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
END_SECONDS = 10


def serve(
    root: Path,
    folder: SearchFolder | None,
    host: str,
    port: int,
    open_browser: bool,
    say: Callable[[str], None],
) -> int:
    """Open the run of a search, the newest by default, in the MLflow UI, and return the exit code.
    For a tracking database in a file a server is started, until ctrl-C. `say` prints a line."""
    folder = folder or newest_readable(root)
    if folder is None:
        raise UserError(f"no search has been run in {root}", "start one: bitfront run")
    config = stored_config(folder)
    named.check("tracking", config.tracking.uri, config.name)
    uri = tracking_uri(config, root)
    remote = uri.startswith(("http://", "https://"))
    say("asking MLflow ..." if remote else "starting MLflow ...")
    path = run_path(uri, folder)
    if remote:
        # The browser asks for a password itself: its command line is no place for one.
        return _open(without_secrets(uri).rstrip("/") + path, open_browser, say)
    if host not in LOOPBACK:
        say(f"warning: listening on {host}; MLflow has no login of its own, put one in front of it")
    port = port or free_port(host)
    check_free(host, port)
    base = url_of(host, port)
    with _server(uri, host, port) as process:
        _wait_until_up(base, port, process)
        try:
            _open(base + path, open_browser, say)
            say("ctrl-C ends it")
            process.wait()
        except KeyboardInterrupt:
            return 0
        say(f"the MLflow server ended: {process.last_line()}")
        return 1


@contextmanager
def _server(uri: str, host: str, port: int) -> Iterator[Server]:
    """An MLflow server. A ctrl-C does not reach its processes: they are ended here, or by the guard
    where this process is killed."""
    environment = {
        # Its job runners are for language models: a dozen processes that take a core to start.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **{k: v for k, v in os.environ.items() if k not in LOGIN},
        # Not as an option: the list of processes would show a password.
        "MLFLOW_BACKEND_STORE_URI": uri,
        # `python -m` and uvicorn would import files of the current folder in place of libraries.
        "PYTHONSAFEPATH": "1",
        "UVICORN_APP_DIR": sysconfig.get_path("purelib"),
    }
    guard = Guard()
    with tempfile.TemporaryFile() as said:
        try:
            with held_back():
                process = Server(
                    _command(host, port),
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env=environment,
                    start_new_session=True,
                )
                guard.watch(process.pid)
            process.said = said
            try:
                yield process
            finally:
                _end(process)
        finally:
            guard.end()


def _command(host: str, port: int) -> list[str]:
    command = [sys.executable, "-m", "mlflow", "server"]
    return [*command, "--host", host, "--port", str(port), "--workers", "1"]


class Server(subprocess.Popen[bytes]):
    """The process of an MLflow server, with its standard error."""

    said: IO[bytes]

    def last_line(self) -> str:
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"


def _end(process: Server) -> None:
    """Ask the server to end; the guard kills what does not."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):  # a busy machine
        process.wait(END_SECONDS)


def run_path(uri: str, folder: SearchFolder) -> str:
    """The path of the parent run's page, or of its report where there is one."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    runs = find_runs(client, experiments, folder.identity, "search")
    if not runs:
        return "/"
    info = runs[0].info
    page = f"/#/experiments/{info.experiment_id}/runs/{info.run_id}"
    if not keeps_artifacts(client, info.run_id, uri, folder.path.parent):
        return f"{page}?{TRAINING}"
    made = any(artifact.path == REPORT for artifact in client.list_artifacts(info.run_id))
    return f"{page}/artifacts/{REPORT}?{TRAINING}" if made else f"{page}?{TRAINING}"


def _open(url: str, open_browser: bool, say: Callable[[str], None]) -> int:
    say(f"MLflow: {url}")
    if open_browser and sys.stdout.isatty():
        webbrowser.open(url)
    return 0


def _wait_until_up(base: str, port: int, process: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            host = urllib.parse.urlsplit(base).hostname or ""
            check_free(host, port)  # somebody else may have been faster
            raise UserError(f"the MLflow server did not start: {process.last_line()}")
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=2):
                # Another program that took the port meanwhile would answer too.
                if listens_in_session(process.pid, port) is not False:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.3)
    raise UserError(f"the MLflow server did not answer within {START_SECONDS} s")
