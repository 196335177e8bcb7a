"""Whole searches as a user runs them: real processes, real Ray, real MLflow, and faults."""

import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import read_entries
from testbed import warm
from testbed.rig import free_port, listens, processes, wait_for

pytestmark = pytest.mark.slow

TOKEN = secrets.token_hex(32)
BITFRONT = [sys.executable, "-m", "bitfront.cli"]

SEARCH = """\
name: e2e
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 24}
  epochs: 4
  batch_size: 32
  optimizer: {name: adam, lr: 0.01}
space:
  method: [bnn, bc]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.003, 0.03], log: true}
search: {trials: 8, seed: 0}
resources: {cpus: 1}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Ray head of our own on loopback, ended by its process group."""
    port = free_port()
    # Its Python, with which it starts workers, is the one that is forked.
    command = [warm.python(), "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--port={port}", "--num-cpus=2"]
    command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false"]
    command += ["--disable-usage-stats", "--object-store-memory=200000000"]
    log = (tmp_path_factory.mktemp("ray") / "log").open("w")
    process = subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=with_token(),
    )
    wait_for(lambda: listens(port), 200, "the Ray head")
    yield f"127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def with_token():
    """The environment of a head and of its users: they share a token of the test's own."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_ADDRESS": ""}
    return {**os.environ, **token, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}


class User:
    """Somebody at a terminal in a folder of their own."""

    def __init__(self, folder, cluster):
        self.folder = folder
        self.address = cluster
        self.env = with_token() | {"BITFRONT_HOME": str(folder / "runs")}
        (folder / "e2e.yaml").write_text(SEARCH)

    def start(self, *words, first=""):
        """A running command, which runs the code `first` before."""
        return warm.start(self.words(*words), self.folder, self.env, first=first)

    def words(self, *words):
        joins = words[0] in ("run", "resume", "extend")
        return (*words, "--address", self.address) if joins else words

    def call(self, *words, code=0):
        """What a command printed."""
        process = self.start(*words)
        out, _ = process.communicate(timeout=200)
        assert process.returncode == code, out
        return out

    def json(self, *words):
        return json.loads(self.call(*words, "--json"))

    @property
    def search(self):
        return SearchFolder(self.folder / "runs" / "e2e")

    def entries(self):
        if not (self.search.path / "ledger.db").exists():
            return []
        try:
            return read_entries(self.search.ledger_url, "e2e")
        except Exception:  # the driver is just creating the tables
            return []

    def complete(self):
        """The finished trials, and when each ended."""
        return {e.id: e.ended for e in self.entries() if e.state == "complete"}

    def checkpoints(self, since=0.0):
        files = (self.search.path / "trials").glob("*/state.pt")
        return [file for file in files if written(file) > since]

    def runs(self):
        client = MlflowClient(f"sqlite:///{self.folder / 'runs' / 'mlflow.db'}")
        experiments = [e.experiment_id for e in client.search_experiments()]
        return client, client.search_runs(experiments, "tags.`bitfront.kind` = 'trial'")

    def check_invariants(self, trials):
        """Every trial ended once, in the ledger and in MLflow, and nothing is left behind."""
        entries = self.entries()
        assert len(entries) == len({e.id for e in entries}) == trials
        assert Counter(e.state for e in entries)["running"] == 0
        assert all(len(e.history) == 4 for e in entries if e.state == "complete")
        _, runs = self.runs()
        assert sorted(r.data.tags["bitfront.trial"] for r in runs) == sorted(e.id for e in entries)
        assert "RUNNING" not in {r.info.status for r in runs}
        assert not (self.search.path / "trials").exists()


def written(file):
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # its trial has just ended
        return 0.0


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cluster):
    """A search that ran undisturbed, and what it printed."""
    user: Any = User(tmp_path_factory.mktemp("finished"), cluster)
    user.printed = user.call("run", "e2e.yaml")
    return user


@pytest.fixture
def user(tmp_path, cluster):
    return User(tmp_path, cluster)


def test_a_run_ends_with_the_front_and_the_next_commands(finished):
    out = finished.printed
    assert "8/8 trials, 0 running, 0 failed" in out
    assert "hypervolume" in out
    assert "ETA" in out
    assert "Front of e2e:" in out
    for entry in finished.entries():
        assert f"\n{entry.id}  " in out
    for stage in ("reading e2e.yaml ...", "reading digits ...", "joining Ray at"):
        assert stage in out, stage
    for command in ("bitfront ui e2e", "bitfront export e2e", "bitfront train recipe.yaml"):
        assert command in out
    finished.check_invariants(8)


def test_actors_are_reused_and_trials_learn(finished):
    entries = finished.entries()
    assert max(e.metrics["val_accuracy"] for e in entries) > 0.85
    assert {e.spec.plan for e in entries[:2]} == {"FFFF", "BBBB"}


def test_the_front_is_shown_as_table_json_and_csv(finished):
    report = finished.json("front", "e2e")
    assert set(report) >= {"search", "objectives", "reference", "hypervolume", "points"}
    points = report["points"]
    assert [p["flops"] for p in points] == sorted(p["flops"] for p in points)
    assert [p["val_accuracy"] for p in points] == sorted(p["val_accuracy"] for p in points)
    reference = report["reference"]
    volume, last = 0.0, reference["val_accuracy"]
    for point in points:
        volume += max(0.0, point["val_accuracy"] - last) * (reference["flops"] - point["flops"])
        last = max(last, point["val_accuracy"])
    assert report["hypervolume"] == pytest.approx(volume)
    table = finished.call("front", "e2e", "--plot")
    assert all(p["trial"] in table for p in points)
    assert max(map(len, table.splitlines()[:10])) <= 80
    assert len(finished.call("front", "e2e", "--csv").splitlines()) == 9


def test_a_home_may_be_called_anything_and_a_lost_ledger_ends_its_search(tmp_path, cluster):
    """The ledger is in the home, Ray and MLflow work there; when it is deleted the driver says so
    and ends, instead of writing on to a file that nobody will see."""
    folder = tmp_path / "a?b %41 {c}"
    folder.mkdir()
    user = User(folder, cluster)
    process = user.start("run", "e2e.yaml", "--trials", "400")
    wait_for(user.complete, 200, "a trial", process)
    for file in user.search.path.glob("ledger.db*"):
        file.unlink()
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 2, out
    assert "was deleted while the search ran" in out
    assert "Traceback" not in out
    assert (user.folder / "runs" / "mlflow.db").exists()
    assert set(os.listdir(tmp_path)) <= {folder.name, "config"}
    (user.search.path / "ledger-rescued.db").rename(user.search.path / "ledger.db")
    assert user.json("status", "e2e")["trials"]["complete"] >= 1


def test_the_status_counts_every_state(finished):
    report = finished.json("status", "e2e")
    assert report["state"] == "complete"
    assert report["trials"] == {
        "complete": 8, "stopped": 0, "failed": 0, "running": 0, "paused": 0, "waiting": 0,
    }  # fmt: skip
    assert report["failures"] == {}
    assert "e2e" in finished.call("status")


def test_the_parent_run_has_the_front_as_html_png_and_csv(finished):
    client, runs = finished.runs()
    parent = runs[0].data.tags["mlflow.parentRunId"]
    names = {a.path for a in client.list_artifacts(parent)}
    assert names == {
        "search.yaml",
        "report.html",
        "front.html",
        "front.png",
        "front-small.png",
        "front.csv",
    }
    png = Path(client.download_artifacts(parent, "front.png")).read_bytes()
    assert png.startswith(b"\x89PNG")
    tagged = {r.data.tags["bitfront.trial"] for r in runs if r.data.tags["pareto"] == "true"}
    assert tagged == {p["trial"] for p in finished.json("front", "e2e")["points"]}
    note = client.get_run(parent).data.tags["mlflow.note.content"]
    assert f"get-artifact?path=front-small.png&run_uuid={parent}" in note
    assert all(f"`{p['plan']}`" in note for p in finished.json("front", "e2e")["points"])


def test_export_train_and_the_packed_checkpoint(finished):
    import torch

    from bitfront.trainables import packed
    from bitfront.trainables.data import load_test
    from bitfront.trainables.training.evaluation import evaluate

    points = finished.json("front", "e2e")["points"]
    out = finished.call("export", "e2e", "--budget", "100%")
    assert points[-1]["trial"] in out
    recipe = yaml.safe_load((finished.folder / "recipe.yaml").read_text())
    assert recipe["spec"]["plan"] == points[-1]["plan"]
    assert recipe["expected"]["val_accuracy"] == points[-1]["val_accuracy"]
    finished.call("export", "e2e", "--trial", points[0]["trial"], "-o", "cheap.yaml")
    (finished.folder / "elsewhere").mkdir()
    (finished.folder / "cheap.yaml").rename(finished.folder / "elsewhere" / "cheap.yaml")
    result = finished.json("train", "elsewhere/cheap.yaml", "--seeds", "2", "--epochs", "3")
    assert [s["seed"] for s in result["seeds"]] == [0, 1]
    assert result["train_examples"] == 1438
    model, spec, notes = packed.load(finished.folder / result["seeds"][0]["checkpoint"])
    assert spec.plan == points[0]["plan"]
    with torch.no_grad():
        accuracy = evaluate(model, load_test("digits"))["val_accuracy"]
    assert accuracy == pytest.approx(result["seeds"][0]["test_accuracy"])
    assert notes["test_accuracy"] == result["seeds"][0]["test_accuracy"]
    again = finished.call("train", "elsewhere/cheap.yaml", "--seeds", "2", "--epochs", "3")
    assert "already trained" in again
    client, _ = finished.runs()
    experiment = client.get_experiment_by_name("digits mlp").experiment_id
    finals = client.search_runs([experiment], "tags.`bitfront.kind` = 'final'")
    assert {run.info.run_name for run in finals} == {
        f"final e2e-{points[0]['trial']} seed {seed}" for seed in (0, 1)
    }
    parents = {run.data.tags["mlflow.parentRunId"] for run in finals}
    (search,) = client.search_runs([experiment], "tags.`bitfront.kind` = 'search'")
    assert parents == {search.info.run_id}


def test_every_way_to_choose_a_point(finished):
    points = finished.json("front", "e2e")["points"]
    finished.call("export", "e2e", "--all", "-o", "all")
    assert len(list((finished.folder / "all").glob("*.yaml"))) == len(points)
    finished.call("export", "e2e", "--knee", "-o", "knee.yaml")
    worst = points[0]["val_accuracy"]
    assert points[0]["trial"] in finished.call(
        "export", "e2e", "--min-accuracy", f"{worst:.6f}"[:-1]
    )
    assert "no point of the front" in finished.call("export", "e2e", "--budget", "0.1%", code=2)
    assert "which point?" in finished.call("export", "e2e", code=2)


def test_a_replayed_trial_is_equal_bit_for_bit(finished):
    trial = finished.json("front", "e2e")["points"][0]["trial"]
    report = finished.json("replay", trial)
    assert report["equal"] is True
    assert report["recorded_accuracy"] == report["replayed_accuracy"]


def test_running_the_same_command_again_repeats_nothing(finished):
    before = [(e.id, e.ended) for e in finished.entries()]
    out = finished.call("run", "e2e.yaml")
    assert "8 trials done, 0 to go" in out
    assert [(e.id, e.ended) for e in finished.entries()] == before


def test_another_configuration_under_the_same_name_is_refused(finished):
    out = finished.call("run", "e2e.yaml", "--set", "task.epochs=9", code=2)
    assert "task.epochs: 4 -> 9" in out
    assert "--name e2e-2" in out


def test_a_search_compares_with_itself(finished):
    report = finished.json("compare", "e2e", "e2e")
    assert report["a"]["hypervolume"] == report["b"]["hypervolume"]
    assert "joint front" in finished.call("compare", "e2e", "e2e")


# Trials that take seconds, though little CPU time, and some of which diverge.
PACE = """\
import time


def pace(output, target):
    time.sleep(0.4)
    return 1.0
"""
LONG = {
    "task.metrics": "[pace.py:pace]",
    "task.optimizer.name": "sgd",
    "space.method": "bnn",
    "space.optimizer.lr": "[0.01, 1e30]",
}


@pytest.mark.timeout(900)
def test_a_search_survives_ctrl_c_its_driver_and_its_workers_and_can_be_extended(user):
    """Ctrl-C while trials run; resume, and kill -9 of the driver; then extend, and kill -9 of a
    worker. Trials that diverge fail with their reason."""
    (user.folder / "pace.py").write_text(PACE)
    settings = [word for key, value in LONG.items() for word in ("--set", f"{key}={value}")]
    process = user.start("run", "e2e.yaml", *settings)
    wait_for(
        lambda: user.complete() and user.checkpoints(),
        240,
        "a finished trial and a checkpoint of another",
        process,
    )
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 130, out
    assert "Front of e2e:" in out
    assert "bitfront resume e2e" in out
    assert "Traceback" not in out

    before, begun = user.complete(), time.time()
    process = user.start("resume", "e2e")
    wait_for(lambda: user.checkpoints(begun), 240, "a checkpoint of this turn", process)
    process.kill()
    process.wait()
    ended = {e.id: e.ended for e in user.entries() if e.state != "running"}
    open_ = {e.id for e in user.entries() if e.state == "running"}
    assert before.items() <= ended.items()
    assert open_
    assert user.json("status", "e2e")["state"] == "interrupted"

    others, begun = trial_workers(), time.time()
    process = user.start("extend", "e2e", "--trials", "+2")
    wait_for(
        lambda: user.checkpoints(begun) and trial_workers() - others,
        240,
        "a checkpoint of the extended search",
        process,
    )
    os.kill(min(trial_workers() - others), signal.SIGKILL)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    assert f"{len(ended)} trials done" in out
    assert "Failed trials" in out
    entries = {e.id: e for e in user.entries()}
    assert {k: entries[k].ended for k in ended} == ended
    assert open_ <= set(entries)
    failed = [e for e in entries.values() if e.state == "failed"]
    assert {e.state for e in entries.values()} == {"complete", "failed"}
    assert {e.failure for e in failed} == {"nan"}
    assert user.json("status", "e2e")["failures"] == {"nan": len(failed)}
    user.check_invariants(10)
    assert "has a budget of 10 already" in user.call("extend", "e2e", "--trials", "4", code=2)


def trial_workers():
    """Forked processes of our trainable, by the title Ray gives its actors. Those of a driver that
    is gone linger: who was there before the next one started belongs to it."""
    titles = processes(f"{warm.FOLDER}={warm.commands()}").items()
    return {pid for pid, title in titles if title.startswith("ray::ResourceTrainable")}


def test_a_driver_that_is_stopped_while_it_imports_ends_as_with_ctrl_c(user, tmp_path):
    """Ray's own answer to SIGTERM is a dump of its stack."""
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(
            [*BITFRONT, *user.words("run", "e2e.yaml")],
            cwd=user.folder,
            env=user.env,
            stdout=log,
            stderr=log,
        )
        wait_for(lambda: user.search.driver, 200, "the driver's lock", process)
        time.sleep(0.5)
        user.call("stop", "e2e")
        process.wait(200)
    check_stopped(process.returncode, (tmp_path / "log").read_text())


# bitfront, which gets a SIGTERM when Ray imports its last part: what it does at the exit is set by
# then, and would fail without the rest.
STRUCK_IMPORT = """
import importlib.abc, os, signal, sys

class Striking(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "ray.client_builder":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Striking())
from bitfront.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_driver_that_is_stopped_while_it_imports_ray_leaves_no_traceback(user):
    words = [sys.executable, "-c", STRUCK_IMPORT, *user.words("run", "e2e.yaml")]
    done = subprocess.run(words, cwd=user.folder, env=user.env, capture_output=True, text=True)
    check_stopped(done.returncode, done.stdout + done.stderr)


def test_a_driver_that_is_stopped_while_its_first_trial_starts_ends_as_with_ctrl_c(user):
    process = user.start("run", "e2e.yaml")
    wait_for(user.entries, 200, "the first trial", process)
    user.call("stop", "e2e")
    check_stopped(process.wait(200), process.log.read_text())


def check_stopped(code, out):
    assert code == 130, out
    assert "SIGTERM" not in out
    assert "Traceback" not in out


# bitfront, which gets a SIGTERM so many seconds after Ray begins to start or to join a cluster
STRUCK = """
import importlib, os, signal, threading

module, name, seconds = "{moment}".split()
owner = importlib.import_module(module)
struck = getattr(owner, name)

def strike(*args, **options):
    threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGTERM)).start()
    return struck(*args, **options)

setattr(owner, name, strike)
"""


@pytest.mark.parametrize(
    "moment",
    ["ray init 0", *(f"ray._private.worker connect {s}" for s in (0, 0.02, 0.1, 0.3))],
)
def test_a_driver_that_is_stopped_while_it_joins_a_cluster_ends_as_with_ctrl_c(user, moment):
    """Ray leaves with 15 then, and its C++ shows a stack; both for less than a second."""
    process = user.start("run", "e2e.yaml", first=STRUCK.format(moment=moment))
    out, _ = process.communicate(timeout=200)
    check_stopped(process.returncode, out)
    if "connect" in moment and "resume" in out:  # it had joined, and the first trial had begun
        assert user.search.path.exists()
        return
    assert "Interrupted before the first trial: nothing was kept." in out
    assert not user.search.path.exists()
    assert not (user.folder / "runs" / "mlflow.db").exists()


def test_a_ctrl_c_while_ray_starts_is_answered_at_once_and_leaves_nothing(tmp_path):
    """With a Ray of its own, whose start takes seconds in which signals are held back."""
    (tmp_path / "e2e.yaml").write_text(SEARCH)
    home = tmp_path / "runs"
    process = subprocess.Popen(
        [warm.python(), *BITFRONT[1:], "run", "e2e.yaml"],
        cwd=tmp_path,
        env={**os.environ, "BITFRONT_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    lines = iter(process.stdout.readline, "")
    before = list(itertools.takewhile(lambda text: "starting Ray" not in text, lines))
    assert any("reading e2e.yaml" in line for line in before)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    until = list(itertools.takewhile(lambda text: "interrupted: ending" not in text, lines))
    answered = time.monotonic() - sent
    out = process.communicate(timeout=100)[0]
    assert answered < 5, until  # a fraction of a second where nobody else works
    assert process.returncode == 130, out
    assert "Interrupted before the first trial: nothing was kept." in out
    assert not home.exists()


def test_a_ledger_cannot_be_moved(finished):
    words = ["run", "e2e.yaml", "--ledger", "sqlite:///other.db"]
    assert "has its ledger at sqlite:///" in finished.call(*words, code=2)
    assert not (finished.folder / "other.db").exists()


def test_two_drivers_of_one_search_are_kept_apart(user):
    with user.search.locked():
        user.search.config_file.write_text(SEARCH)
        assert "is running in another process" in user.call("resume", "e2e", code=2)


def test_a_trial_that_can_never_be_scheduled_is_an_error(user):
    out = user.call("run", "e2e.yaml", "--set", "resources.cpus=64", code=2)
    assert "a trial wants 64 CPUs" in out
    assert not user.search.path.exists()
    assert "no search has been run" in user.call("status")
