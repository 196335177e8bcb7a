"""Searches on a cluster, reached from outside: a real head with its dashboard and client server."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bitfront.search.cluster.remote.mailbox import Answer
from bitfront.search.cluster.remote.words import secret_free
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import Results
from bitfront.trainables.errors import UserError
from testbed import warm

pytestmark = pytest.mark.slow

YAML = """\
name: away
task: {dataset: digits, model: {name: mlp, depth: 3, width: 8}, epochs: 2, subset: 200}
space: {method: [bnn], plan: {per: layer, levels: [F, B]}, optimizer.lr: {float: [0.001, 0.1]}}
search: {trials: 500, sampler: random}
tracking: {enabled: false}
"""
OWN_NET = """\
from sizes import FEATURES
from torch import nn


def net(num_classes, width=8):
    layers = [nn.Linear(FEATURES, width), nn.Linear(width, width), nn.Linear(width, num_classes)]
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])
"""
OWN_DATA = """\
import numpy as np
from sizes import FEATURES


def load():
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((count, FEATURES)).astype("float32") for count in (120, 40)]
    return tuple((x, (x[:, 0] > 0).astype("int64")) for x in parts)
"""
OWN_YAML = """\
name: mine
task: {dataset: my_data.py:load, model: my_net.py:net, epochs: 1}
space: {method: [bnn], plan: {per: layer, levels: [F, B]}, model.width: [8, 16]}
search: {trials: 2, sampler: random}
tracking: {enabled: false}
"""
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
        self.env = {**warm.environment(), **token, "RAY_ADDRESS": ""}
        # Ray would end workers where others fill the memory of this machine.
        self.env["RAY_memory_monitor_refresh_ms"] = "0"
        # It remembers the homes of searches there; those of another run are not its own.
        self.env["XDG_CONFIG_HOME"] = str(folder / "config")
        command = [*warm.ray(), "start", "--head", "--block", f"--port={ports['gcs']}"]
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
            [warm.python(), "-c", TERMINAL],
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


THERE = ("--address", "http://there")


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    head = Head(tmp_path_factory.mktemp("head"))
    port = int(head.http.rpartition(":")[2])
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield head
    head.stop()


def jobs_at(head):
    from bitfront.search.cluster.remote.http import Dashboard

    return {job["submission_id"]: job for job in Dashboard(head.http).jobs()}


@pytest.mark.timeout(900)
def test_a_submitted_search_is_watched_stopped_and_continued_from_outside(head, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, head.env[name])
    told = json.loads(head.call("submit", "away.yaml", "--address", head.http, "--json"))
    assert (told["search"], told["state"]) == ("away", "running")
    folder = SearchFolder(head.home / "away")
    assert folder.running, "it was told to run when it did"
    # Somebody else's search of this name is refused, and nothing of it is taken for the first.
    changed = ["submit", "away.yaml", "--set", "task.epochs=3", "--address", head.http]
    refused = head.call(*changed, code=2)
    assert "exists with another configuration: task.epochs: 2 -> 3" in refused
    assert "search 'away' did not begin" in refused
    log = head.call("logs", "away", "--address", head.http)
    assert "another configuration" not in log
    assert "all checks passed: trials start" in log
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if any(e.state == "complete" for e in Results.of(folder).entries):
            break
        time.sleep(0.5)
    # What a node does that joins on a disk it shares with the head, before it unpacks it anew.
    (place,) = Path(head.files).glob("session_2*/runtime_resources/working_dir_files")
    for sent in [path for path in place.iterdir() if (path / "away.yaml").exists()]:
        shutil.rmtree(sent)
    searches = json.loads(head.call("status", "--address", head.http, "--json"))
    [listed] = [search for search in searches if search["search"] == "away"]
    assert listed["home"] == str(head.home)
    assert listed["owner"].endswith(socket.gethostname())
    stopped = head.call("stop", "away", "--address", head.http)
    assert f"continue: bitfront resume away --address {head.http}" in stopped
    log = head.call("logs", "away", "--address", head.http)
    assert "Front of away" in log
    assert "Traceback" not in log, "the folder of its job has vanished under the driver"
    report = json.loads(head.call("status", "away", "--address", head.http, "--json"))
    assert report["state"] == "interrupted"
    assert report["trials"]["complete"] >= 1
    assert "unknown search 'nope'" in head.call("front", "nope", "--address", head.http, code=2)
    assert "has a budget of" in head.call(
        "extend", "away", "--trials", "1", "--address", head.http, code=2
    )
    recipe = head.folder / "point.yaml"
    head.call("export", "away", "--knee", "-o", str(recipe), "--address", head.http)
    assert "bitfront_recipe" in recipe.read_text()
    left = [job for job in jobs_at(head) if job.startswith("raysubmit")]
    assert left == [], "short commands are no jobs"
    assert not (head.folder / "here").exists(), "nothing of it is kept here"


@pytest.mark.timeout(300)
def test_a_wrong_token_is_one_line_through_http_and_rays_client(head, monkeypatch, capsys):
    from bitfront import cli

    monkeypatch.chdir(head.folder)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    for words in (
        ["status"],
        ["front", "away"],
        ["stop", "away"],
        ["logs", "away"],
        ["export", "away", "--knee"],
        ["resume", "away"],
        ["extend", "away", "--trials", "+1"],
        ["submit", "away.yaml"],
        ["doctor"],
    ):
        assert cli.main([*words, "--address", head.http]) == 2
        said = capsys.readouterr().err
        assert f"{head.http} refuses the token of the variable RAY_AUTH_TOKEN" in said
        assert said.count("\n") == 1
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert cli.main(["status", "--address", head.http]) == 2
    assert "set RAY_AUTH_MODE=token" in capsys.readouterr().err
    # Ray reads a token once per process: this one is the terminal's, the right one is not sent.
    wrong = head.env | {"RAY_AUTH_TOKEN": secrets.token_hex(32), "PYTHONPATH": os.getcwd()}
    command = [warm.commands() / "bitfront", "resume", "away", "--address", head.client]
    there = subprocess.run(command, env=wrong, capture_output=True, text=True, check=False)
    assert there.returncode == 2
    assert f"{head.client} refuses the token of the variable RAY_AUTH_TOKEN" in there.stderr
    assert there.stderr.count("\n") == 1


@pytest.mark.timeout(600)
def test_a_network_and_data_of_ones_own_are_sent_with_the_search(head):
    folder = head.folder / "own"
    folder.mkdir()
    (folder / "my_net.py").write_text(OWN_NET)
    (folder / "my_data.py").write_text(OWN_DATA)
    (folder / "sizes.py").write_text("FEATURES = 6\n")
    (folder / "search.yaml").write_text(OWN_YAML)
    head.call("submit", "own/search.yaml", "--address", head.http)
    shutil.rmtree(folder)  # the head has what it needs
    results = SearchFolder(head.home / "mine")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if results.exists and Results.of(results).state == "complete":
            break
        time.sleep(0.5)
    told = head.call("front", "mine", "--address", head.http)
    assert "Front of mine: " in told
    assert "of 2 complete trials" in told
    kept = sorted(file.name for file in (head.home / "mine" / "code").rglob("*.py"))
    assert kept == ["my_data.py", "my_net.py", "sizes.py", "sizes.py"]


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
    given = ["run", "away.yaml", *flags, "--home", "/there", "--address", "ray://there:10001"]
    assert ray_client.run_there(cli.build_parser().parse_args(given)) == 0
    [(words, files, submission)] = sent
    assert words == ["run", "away.yaml", *flags, "--home", "/there"]
    assert files == {"away.yaml": YAML.encode()}
    told = json.loads(submission)
    assert (told["address"], told["home"], told["job"]) == ("http://there:8265", "/there", "")


@pytest.mark.timeout(600)
def test_doctor_asks_every_node_what_it_shares(head, tmp_path):
    shared = ["--storage", str(tmp_path), "--ledger", f"sqlite:///{tmp_path}/ledger.db"]
    checks = json.loads(head.call("doctor", "--address", head.http, *shared, "--json"))
    found = {check["name"]: check for check in checks}
    wanted = ("nodes", "resources", "clocks", "storage", "ledger", "torch on all nodes")
    assert {found[name]["verdict"] for name in wanted} == {"PASS"}
    assert "1 node with 1 CPU" in found["resources"]["found"]
    assert not list(tmp_path.glob("bitfront-doctor*")), "nothing is left behind"
    client = json.loads(head.call("doctor", "--address", head.client, *shared, "--json"))
    verdicts = [[(check["name"], check["verdict"]) for check in said] for said in (client, checks)]
    assert verdicts[0] == verdicts[1], "Ray's client and the dashboard lead to the same nodes"


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
    from bitfront.search.cluster import jobs
    from bitfront.search.cluster.remote.words import run_words
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
    monkeypatch.setattr(jobs.Head, "ask", lambda _, *said: heard.append(said) or Answer(0))
    flags = ["--plot", "--wide", "--csv"]
    args = cli.build_parser().parse_args(["front", "x", *flags, "--address", "http://there"])
    assert on_head.on_head(args, [args.search]) == 0
    assert heard == [(["front", "x", *flags], None)]


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "away.yaml", *THERE],
        *([verb, "away", *THERE] for verb in ("status", "front", "stop", "logs", "resume")),
        ["run", "away.yaml", "--address", "ray://there:10001"],
        ["resume", "away", "--address", "ray://there:10001"],
    ],
    ids=" ".join,
)
def test_a_relative_home_is_refused_before_anything_is_sent(words, tmp_path, monkeypatch, capsys):
    """It would be below the folder of the command on the head, and no later command would find
    it."""
    from bitfront import cli

    monkeypatch.chdir(tmp_path)
    (tmp_path / "away.yaml").write_text(YAML)
    assert cli.main([*words, "--home", "runs-bob"]) == 2
    said = capsys.readouterr().err
    assert "--home runs-bob: commands on the head have folders of their own" in said
    assert "~/bitfront-runs/runs-bob" in said


def test_a_relative_folder_of_data_is_refused_before_anything_is_sent(tmp_path, monkeypatch):
    from bitfront import cli
    from bitfront.search.cluster.remote.words import run_words

    monkeypatch.chdir(tmp_path)
    (tmp_path / "away.yaml").write_text(YAML)

    def words(*given):
        return run_words(cli.build_parser().parse_args(["submit", "away.yaml", *given, *THERE]))

    for given in (["--data-dir", "data"], ["--set", "task.data_dir=./data"]):
        with pytest.raises(UserError, match="the whole path on the nodes") as error:
            words(*given)
        assert str(tmp_path / "data") in error.value.hint
    assert "/mnt/data" in words("--data-dir", "/mnt/data")[0]
    assert "~/data" in words("--data-dir", "~/data")[0]


def job(name, status, start, **told):
    told = {"bitfront_search": "x", "bitfront_owner": "bob@there", **told}
    return {"submission_id": name, "status": status, "start_time": start, "metadata": told}


def head_with(jobs, answer, monkeypatch):
    from bitfront.search.cluster.jobs import Head

    head = Head("http://there")
    monkeypatch.setattr(head.dashboard, "jobs", lambda: jobs)
    monkeypatch.setattr(head, "ask", lambda words, home: answer)
    return head


def test_the_log_of_a_search_is_that_of_the_job_that_had_its_turn(monkeypatch):
    """A second submit of a running search is refused, and ends later than the first began."""
    jobs = [job("first", "SUCCEEDED", 1), job("refused", "FAILED", 2)]
    known = Answer(0, json.dumps({"job": "first"}))
    head = head_with(jobs, known, monkeypatch)
    assert head._job_of("x", None) == "first"
    assert head._job_of("refused", None) == "refused", "by its id"
    unknown = Answer(2, err="error: unknown search 'x', one of: y\n")
    head = head_with(jobs[1:], unknown, monkeypatch)
    with pytest.raises(UserError, match="never began") as told:
        head._job_of("x", None)
    assert "bitfront logs refused --address http://there (sent by bob@there)" in str(told.value)
    with pytest.raises(UserError, match="unknown search 'x', one of: y"):
        head_with([], unknown, monkeypatch)._job_of("x", None)
    early = head_with([*jobs, job("checks", "RUNNING", 3)], unknown, monkeypatch)
    assert early._job_of("x", None) == "checks"
