"""Code of the user's own on Ray: it reaches the workers and stays with the search; looking at the
search runs none of it, and somebody else's search, recipe or packed file runs it after `--trust`
only."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from bitfront.cli import main
from bitfront.search.cluster.remote.words import sent_files
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import Results
from bitfront.trainables import own_code
from bitfront.trainables.own_code import trusted
from testbed import warm

pytestmark = pytest.mark.slow

CODE = """
import os
from pathlib import Path

import torch

import slopes

if "MARK" in os.environ:
    Path(os.environ["MARK"]).write_text("run")


class Triangle:
    name = "tri"

    def forward(w, mu=2.0):
        return torch.where(w >= 0, 1.0, -1.0)

    def backward(w, mu=2.0):
        return slopes.triangle(w) * mu


def fails(w):
    if w.numel() > 8:
        raise RuntimeError("on purpose")
    return w


def share_right(output, target):
    return (output.argmax(1) == target).float().mean()


def cycles(layer):
    return layer.macs
"""
SLOPES = "def triangle(w): return (1 - w.abs()).clamp_min(0)\n"
YAML = """\
name: own
task:
  dataset: digits
  model: {name: mlp, depth: 4, width: 8}
  epochs: 1
  subset: 200
  metrics: [mine.py:share_right]
space:
  method: [mine.py:Triangle, mine.py:fails]
  plan: {per: layer, levels: [F, B]}
  tri.mu: {float: [1, 3]}
objectives: {val_share_right: max, cycles: min}
costs: [mine.py:cycles]
search: {sampler: random, trials: 6, seed: 1}
tracking: {enabled: false}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project whose search was run by its owner, in another process with another home."""
    project = tmp_path_factory.mktemp("project")
    (project / "mine.py").write_text(CODE)
    (project / "slopes.py").write_text(SLOPES)
    (project / "own.yaml").write_text(YAML)
    env = {**os.environ, "XDG_CONFIG_HOME": str(project / "config")}
    env |= {"BITFRONT_HOME": str(project / "runs")}
    for words in (
        ["run", "own.yaml", "--quiet"],
        ["export", "own", "--knee"],
        ["train", "recipe.yaml", "--seeds", "1", "--quiet"],
    ):
        command = [warm.python(), "-m", "bitfront.cli", *words]
        done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return project


@pytest.fixture
def received(made, tmp_path, monkeypatch):
    """What somebody else sent: the folder of the search, its recipe and its packed network, without
    the project. `mark` is written where their code runs."""
    shutil.copytree(made / "runs", tmp_path / "runs")
    shutil.copy(made / "recipe.yaml", tmp_path)
    shutil.copy(made / "recipe-trained" / "seed0.safetensors", tmp_path)
    recipe = (tmp_path / "recipe.yaml").read_text().replace(str(made), "/elsewhere")
    (tmp_path / "recipe.yaml").write_text(recipe)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    for name in [n for n in sys.modules if n.startswith("own_mine")]:
        monkeypatch.delitem(sys.modules, name)
    for place in ("own_code.loading._objects",):
        monkeypatch.setattr(f"bitfront.trainables.{place}", {})
    return tmp_path


def entries(folder):
    return Results.of(SearchFolder(folder / "runs" / "own")).entries


def test_workers_run_the_code_and_report_what_it_raises(made):
    found = entries(made)
    complete = [e for e in found if e.state == "complete"]
    assert complete
    for metrics in (e.metrics for e in complete):
        assert metrics["val_share_right"] == pytest.approx(metrics["val_accuracy"])
    assert all("cycles" in e.costs for e in found)
    failed = [e for e in found if e.state == "failed"]
    assert failed
    assert all("mine.py:25: cannot quantize: RuntimeError: on purpose" in e.message for e in failed)


def test_hashes_are_in_ledger_recipe_and_packed_file(made):
    source = own_code.places.find(own_code.parse(f"{made}/mine.py:Triangle"))
    digest = source.sha256[:12]
    assert all(f"@{digest}" in e.spec.method for e in entries(made))
    assert f"mine.py:Triangle@{digest}" in (made / "recipe.yaml").read_text()
    packed = (made / "recipe-trained" / "seed0.safetensors").read_bytes()
    assert f"mine.py:Triangle@{digest}".encode() in packed
    kept = made / "runs" / "own" / "code" / digest
    assert sorted(file.name for file in kept.iterdir()) == ["mine.py", "slopes.py"]


@pytest.mark.parametrize(
    "words",
    [
        ["status", "own"],
        ["status", "own", "--json"],
        ["front", "own", "--plot"],
        ["front", "own", "--csv"],
        ["report", "own"],
        ["figure", "own", "-o", "front.png"],
        ["figure", "own", "--kind", "layers", "-o", "layers.png"],
        ["compare", "own", "own"],
        ["export", "own", "--knee", "-o", "other.yaml"],
        ["mask", "seed0.safetensors"],
    ],
)
def test_looking_runs_no_code_and_shows_no_hash(received, words, capsys):
    assert main(words) == 0, capsys.readouterr()
    assert not (received / "mark").exists()
    printed = capsys.readouterr().out
    assert "--json" in words or "mine.py:Triangle@" not in printed


@pytest.mark.parametrize(
    "words",
    [
        ["resume", "own"],
        ["extend", "own", "--trials", "+1"],
        ["train", "recipe.yaml"],
        ["run", "runs/own/search.yaml", "--name", "again"],
        ["validate", "runs/own/search.yaml"],
    ],
)
def test_what_others_named_is_not_run_without_trust(received, words, capsys):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "is code that you have not run before" in told
    assert "mine.py" in told
    assert "sha256" in told
    assert "--trust" in told
    assert not (received / "mark").exists()


def test_replaying_what_others_trained_asks_for_trust(received, capsys):
    trial = next(e.id for e in entries(received) if e.state == "complete")
    assert main(["replay", trial]) == 2
    assert "--trust" in capsys.readouterr().err
    assert not (received / "mark").exists()
    assert main(["replay", trial, "--trust"]) == 0
    assert (received / "mark").exists()


def test_trust_is_said_once(received, capsys):
    assert main(["validate", "runs/own/search.yaml"]) == 2
    assert main(["resume", "own", "--trust", "--quiet"]) == 0
    trusted._now.clear()
    assert main(["validate", "runs/own/search.yaml"]) == 0


def test_an_installed_function_in_a_recipe_is_not_called(received, capsys):
    victim = received / "victim"
    victim.mkdir()
    text = (received / "recipe.yaml").read_text()
    lines = [
        "      name: shutil:rmtree\n      path: " + str(victim) + "\n"
        if "name: mlp" in line
        else line
        for line in text.splitlines(keepends=True)
        if not line.strip().startswith(("depth:", "width:"))
    ]
    (received / "recipe.yaml").write_text("".join(lines))
    assert main(["train", "recipe.yaml"]) == 2
    assert victim.exists()


def test_a_change_of_the_code_is_named_with_its_file_and_hashes(made, received, capsys):
    for name in ("mine.py", "slopes.py", "own.yaml"):
        shutil.copy(made / name, received)
    assert main(["run", "own.yaml", "--quiet"]) == 0
    (received / "slopes.py").write_text(SLOPES + "# another\n")
    assert main(["run", "own.yaml", "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "the code of mine.py:Triangle was @" in told
    assert "(slopes.py)" in told
    assert "--name own-2" in told


def test_every_verb_that_runs_a_kept_copy_says_that_the_file_has_changed(made, received, capsys):
    for name in ("mine.py", "slopes.py", "own.yaml"):
        shutil.copy(made / name, received)
    assert main(["validate", "own.yaml"]) == 0  # the user's own from here on
    before = own_code.places.find(own_code.parse("mine.py:Triangle")).sha256[:12]
    (received / "slopes.py").write_text(SLOPES + "# another\n")
    after = own_code.places.find(own_code.parse("mine.py:Triangle")).sha256[:12]
    trial = next(e.id for e in entries(received) if e.state == "complete")
    for words in (
        ["resume", "own"],
        ["train", "recipe.yaml", "--seeds", "1"],
        ["train", "recipe.yaml", "--seeds", "1", "--json"],
        ["replay", trial],
        ["export", "own", "--knee", "-o", "again.yaml"],
    ):
        capsys.readouterr()
        assert main(words) == 0
        printed = capsys.readouterr()
        told = " ".join((printed.out + printed.err).split())
        assert f"mine.py has changed (was @{before}, now @{after}) and is not used" in told, words
        assert f"the copy runs/own/code/{before}/mine.py is" in told, words
        assert "bitfront run YAML --name own-2" in told, words
        assert told.count("has changed") == 1, words
        assert "--json" not in words or json.loads(printed.out)
    (received / "slopes.py").write_text(SLOPES)
    assert main(["replay", trial]) == 0
    assert "has changed" not in capsys.readouterr().err


def test_submit_sends_the_code_that_a_yaml_names(made):
    files = sent_files(made / "own.yaml", ["run", "own.yaml", "--set", "task.epochs=2"])
    assert sorted(files) == ["mine.py", "own.yaml", "slopes.py"]
    assert json.dumps(sorted(sent_files(made / "own.yaml", []))) == json.dumps(sorted(files))
