"""Searches on a cluster, reached from outside: a real head with its dashboard and client server."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitfront.search.cluster.jobs import secret_free
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import Results
from bitfront.trainables.errors import UserError

pytestmark = pytest.mark.slow

YAML = """\
name: away
task: {dataset: digits, model: {name: mlp, depth: 3, width: 8}, epochs: 2, subset: 200}
space: {method: [bnn], plan: {per: layer, levels: [F, B]}, optimizer.lr: {float: [0.001, 0.1]}}
search: {trials: 500, sampler: random}
tracking: {enabled: false}
"""
BIN = Path(sys.executable).parent
# Commands one after another, so that Ray is imported once: a line of words in, a line out with the
# exit code and what was printed.
TERMINAL = """
import contextlib, io, json, sys
from bitfront.cli import main

for line in sys.stdin:
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        code = main(json.loads(line))
    print(json.dumps([code, said.getvalue(), wrong.getvalue()]), flush=True)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Head:
    """A Ray head on loopback and somebody at a terminal outside of it."""

    def __init__(self, folder):
        self.folder = folder
        ports = {name: free_port() for name in ("gcs", "http", "client", "agent")}
        self.http = f"http://127.0.0.1:{ports['http']}"
        self.client = f"ray://127.0.0.1:{ports['client']}"
        self.home = folder / "there"
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.env = {**os.environ, **token, "PATH": f"{BIN}:{os.environ['PATH']}", "RAY_ADDRESS": ""}
        command = [BIN / "ray", "start", "--head", "--block", f"--port={ports['gcs']}"]
        command += ["--num-cpus=1", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"]
        command += [f"--dashboard-port={ports['http']}", "--object-store-memory=100000000"]
        # The one of another cluster on this machine may be taken, and without it no job starts.
        command += [f"--dashboard-agent-listen-port={ports['agent']}"]
        command += [f"--ray-client-server-port={ports['client']}", "--disable-usage-stats"]
        # Jobs look for the cluster in it: with the folder of all clusters they may find another.
        self.files = tempfile.mkdtemp(prefix="bf", dir="/tmp")
        command += [f"--temp-dir={self.files}"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=self.env | {"BITFRONT_HOME": str(self.home)},
        )
        (folder / "away.yaml").write_text(YAML)
        self.terminal = subprocess.Popen(
            [sys.executable, "-c", TERMINAL],
            env=self.env | {"BITFRONT_HOME": str(self.folder / "here"), "PYTHONPATH": os.getcwd()},
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what commands write there comes in the line
            text=True,
        )

    def call(self, *words, code=0):
        """A bitfront command from outside, where no search is."""
        self.terminal.stdin.write(json.dumps(words) + "\n")
        self.terminal.stdin.flush()
        ended, said, wrong = json.loads(self.terminal.stdout.readline())
        assert ended == code, said + wrong
        return said if code == 0 else said + wrong

    def stop(self):
        self.terminal.communicate(timeout=60)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.files, ignore_errors=True)


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    head = Head(tmp_path_factory.mktemp("head"))
    port = int(head.http.rpartition(":")[2])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield head
    head.stop()


@pytest.mark.timeout(900)
def test_a_submitted_search_is_watched_stopped_and_read_from_outside(head):
    told = json.loads(head.call("submit", "away.yaml", "--address", head.http, "--json"))
    assert told["search"] == "away"
    folder = SearchFolder(head.home / "away")
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if folder.exists and any(e.state == "complete" for e in Results.of(folder).entries):
            break
        time.sleep(0.5)
    stopped = json.loads(head.call("stop", "away", "--address", head.http, "--json"))
    assert stopped == {"search": "away", "state": "stopped"}
    report = json.loads(head.call("status", "away", "--address", head.http, "--json"))
    assert report["state"] == "interrupted"
    assert report["trials"]["complete"] >= 1
    log = head.call("logs", "away", "--address", head.http)
    assert "Interrupted: running trials keep their last checkpoint." in log
    assert "Traceback" not in log
    assert "unknown search 'nope'" in head.call("front", "nope", "--address", head.http, code=2)
    assert not (head.folder / "here").exists(), "nothing of it is kept here"


@pytest.mark.timeout(600)
def test_through_rays_client_the_whole_driver_runs_on_the_head(head):
    words = ["run", "away.yaml", "--name", "client", "--trials", "2", "--address", head.client]
    assert "Front of client: " in head.call(*words)
    results = Results.of(SearchFolder(head.home / "client"))
    assert results.counts()["complete"] == 2
    assert not (head.folder / "here").exists()
    assert "task.epochs" in head.call(*words, "--set", "task.epochs=0", code=2)


def test_flags_go_to_the_head_through_rays_client_too(tmp_path, monkeypatch):
    from bitfront import cli
    from bitfront.search.cluster import ray_client

    monkeypatch.chdir(tmp_path)
    (tmp_path / "away.yaml").write_text(YAML)
    sent = []
    actor = SimpleNamespace(remote=lambda *given: sent.append(given))
    monkeypatch.setattr(ray_client, "_connect", lambda address, code: None)
    monkeypatch.setattr(ray_client, "_follow", lambda actor: 0)
    monkeypatch.setattr("ray.remote", lambda **options: lambda there: actor)
    monkeypatch.setattr("ray.shutdown", lambda: None)
    flags = ["--quiet", "--dry-run", "--json"]
    given = ["run", "away.yaml", *flags, "--home", "there", "--address", "ray://there:10001"]
    assert ray_client.run_there(cli.build_parser().parse_args(given)) == 0
    assert sent == [(["run", "away.yaml", *flags, "--home", "there"], {"away.yaml": YAML.encode()})]


@pytest.mark.timeout(600)
def test_doctor_asks_every_node_what_it_shares(head, tmp_path):
    shared = ["--storage", str(tmp_path), "--ledger", f"sqlite:///{tmp_path}/ledger.db"]
    checks = json.loads(head.call("doctor", "--address", head.http, *shared, "--json"))
    found = {check["name"]: check for check in checks}
    wanted = ("nodes", "resources", "clocks", "storage", "ledger", "torch on all nodes")
    assert {found[name]["verdict"] for name in wanted} == {"PASS"}
    assert "1 node with 1 CPU" in found["resources"]["found"]
    assert not list(tmp_path.glob("bitfront-doctor*")), "nothing is left behind"


def test_addresses_of_the_wrong_kind_say_what_is_wanted(tmp_path, monkeypatch, capsys):
    from bitfront import cli

    monkeypatch.chdir(tmp_path)

    def said(*words):
        assert cli.main(list(words)) == 2
        return capsys.readouterr().err

    (tmp_path / "away.yaml").write_text(YAML)
    assert "http://HEAD:8265" in said("submit", "away.yaml", "--address", "auto")
    assert "bitfront submit" in said("run", "away.yaml", "--address", "http://127.0.0.1:1")
    assert "no Ray dashboard answers" in said("front", "away", "--address", "http://127.0.0.1:1")
    assert "did you mean" in said(
        "submit", "away.yaml", "--set", "task.epoch=3", "--address", "http://127.0.0.1:1"
    )


def test_no_password_goes_where_the_dashboard_shows_it():
    words = ["--ledger", "postgresql://me@db/ledger", "--set", "tracking.uri=http://server:5000"]
    assert secret_free(words) == words
    for word in (
        "postgresql://me:secret@db/ledger",
        "postgresql://db/ledger?user=me&password=secret",
        "tracking.uri=https://me:secret@server",
        "s3://id:secret@bucket/place",
    ):
        with pytest.raises(UserError, match="pgpass") as told:
            secret_free(["--option", word])
        assert "secret@" not in str(told.value)
        assert "=secret" not in str(told.value)


def test_every_option_of_a_verb_goes_to_the_head(tmp_path, monkeypatch):
    """Options that only say where or how it is sent stay here."""
    from bitfront import cli
    from bitfront.search.cluster.jobs import run_words
    from bitfront.verbs import on_head

    monkeypatch.chdir(tmp_path)
    (tmp_path / "away.yaml").write_text(YAML)
    given = ["--set", "task.epochs=2", "--name", "n", "--trials", "3", "--data-dir", "/d"]
    given += ["--ledger", "postgresql://me@db/ledger", "--warm-start", "other"]
    for verb in ("run", "submit"):
        args = cli.build_parser().parse_args([verb, "away.yaml", *given, "--address", "there"])
        words, file = run_words(args)
        assert words == ["run", "away.yaml", *given]
        assert file == Path("away.yaml")
    heard = []

    def call(*said):
        heard.append(said)
        return 0, ""

    there = SimpleNamespace(home_of=lambda name: None, call=call)
    monkeypatch.setattr(on_head, "head_at", lambda address: there)
    flags = ["--plot", "--wide", "--csv"]
    args = cli.build_parser().parse_args(["front", "x", *flags, "--address", "http://there"])
    assert on_head.on_head(args, [args.search]) == 0
    assert heard == [(["front", "x", *flags], None)]


def test_the_job_that_runs_is_the_one_that_is_meant():
    """A second submit of a running search is refused, and ends later than the first began."""
    from bitfront.search.cluster.jobs import Head

    def job(status, start):
        told = {"bitfront_search": "x"}
        return SimpleNamespace(
            metadata=told, status=SimpleNamespace(value=status), start_time=start
        )

    jobs = [job("FAILED", 1), job("RUNNING", 2), job("FAILED", 3)]
    head = Head.__new__(Head)
    head.address, head.client = "http://there", SimpleNamespace(list_jobs=lambda: jobs)
    assert head.job_of("x") is jobs[1]
    del jobs[1]
    assert head.job_of("x") is jobs[1]
    assert head.home_of("nope") is None
