"""The MLflow UI, opened on a search. It listens on this machine only unless told otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

from search import named, terminal
from search.home import SearchFolder
from search.notes import REPORT
from search.results import newest_readable, stored_config
from search.runs import keeps_artifacts, tracking_uri
from search.urls import without_secrets
from trainables.registry import UserError

START_SECONDS = 180
# For servers: a database of somebody else may say that files of its runs are at one.
LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


def serve(root: Path, folder: SearchFolder | None, host: str, port: int, open_browser: bool) -> int:
    folder = folder or newest_readable(root)
    if folder is None:
        raise UserError(f"no search has been run in {root}", "start one: bitfront run")
    config = stored_config(folder)
    named.check("tracking", config.tracking.uri, config.name)
    uri = tracking_uri(config, root)
    path = run_path(uri, folder)
    if uri.startswith(("http://", "https://")):
        # The browser asks for a password itself: its command line is no place for one.
        return _open(without_secrets(uri).rstrip("/") + path, open_browser)
    if host not in ("127.0.0.1", "localhost", "::1"):
        terminal.show(
            f"warning: listening on {host}; MLflow has no login of its own, put one in front of it"
        )
    command = [sys.executable, "-m", "mlflow", "server"]
    command += ["--host", host, "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={
            # Runners of jobs are for language models: a dozen processes that take a core to start.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            **{k: v for k, v in os.environ.items() if k not in LOGIN},
            # Not an option: the list of processes would show a password.
            "MLFLOW_BACKEND_STORE_URI": uri,
        },
    )
    try:
        base = f"http://{host}:{port}"
        _wait_until_up(base, process)
        _open(base + path, open_browser)
        terminal.show("ctrl-C ends it")
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:  # a busy machine: it has not come to hear of it
            process.kill()


def run_path(uri: str, folder: SearchFolder) -> str:
    """The page of the search's parent run: its report where there is one."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    query = f"tags.`bitfront.search_id` = '{folder.identity}' and tags.`bitfront.kind` = 'search'"
    runs = client.search_runs(experiments, query, max_results=1) if experiments else []
    if not runs:
        return "/"
    info = runs[0].info
    page = f"/#/experiments/{info.experiment_id}/runs/{info.run_id}"
    if not keeps_artifacts(client, info.run_id, uri, folder.path.parent):
        return page
    made = any(artifact.path == REPORT for artifact in client.list_artifacts(info.run_id))
    return f"{page}/artifacts/{REPORT}" if made else page


def _open(url: str, open_browser: bool) -> int:
    terminal.show(f"MLflow: {url}")
    if open_browser and sys.stdout.isatty():
        webbrowser.open(url)
    return 0


def _wait_until_up(base: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            error = process.stderr.read().decode(errors="replace") if process.stderr else ""
            last = error.strip().splitlines()[-1:] or ["no message"]
            raise UserError(
                f"the MLflow server did not start: {last[0]}", "another port: --port 5001"
            )
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise UserError(f"the MLflow server did not answer within {START_SECONDS} s")
