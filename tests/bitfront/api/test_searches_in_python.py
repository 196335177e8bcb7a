"""Whole searches from Python: a script that is not guarded, in a folder with modules called like
ours, with data that it made itself; then what can be done with the search."""

import os
import subprocess

import pytest

import bitfront as bf
from testbed import warm

pytestmark = pytest.mark.slow

DATA = """\
import torch
import bitfront as bf
from torch.utils.data import TensorDataset

torch.manual_seed(0)
x = torch.randn(120, 1, 8, 8)
y = (x.mean((1, 2, 3)) > 0).long()
train, val, test = (TensorDataset(x[a:b], y[a:b]) for a, b in ((0, 80), (80, 100), (100, 120)))
given = dict(data=(train, val, test), epochs=1, batch_size=20, sampler="random", levels="FW",
             tracking={"enabled": False}, name="mine")
MLP = {"name": "mlp", "depth": 4, "width": 8}
"""
SCRIPT = """\
import search
import spaces

assert (search.MINE, spaces.MINE) == (1, 2)
bf.Search(MLP, trials=2, **given).run(quiet=True)
print(bf.open("mine").extend(1))
"""
LONG = """\
bf.Search(MLP, trials=2000, **given).run()
print("went on after the interrupt")
"""
OWN_NETWORK = """\
from torch import nn

WIDTH = 8


class MyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, WIDTH), nn.BatchNorm1d(WIDTH), nn.Hardtanh(),
            nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Hardtanh(), nn.Linear(WIDTH, 2),
        )

    def forward(self, x):
        return self.layers(x)


for _ in range(2):
    print(bf.Search(MyNet, trials=2, **given).run())
"""


def start(folder, code):
    (folder / "script.py").write_text(DATA + code)
    return subprocess.Popen(
        [warm.python(), "script.py"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder in which a script ran a search, and what it printed."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "search.py").write_text("MINE = 1\n")
    (folder / "spaces.py").write_text("MINE = 2\n")
    patch = pytest.MonkeyPatch()
    patch.setenv("BITFRONT_HOME", str(folder / "bitfront-runs"))
    process = start(folder, SCRIPT)
    out, _ = process.communicate(timeout=240)
    patch.undo()
    assert process.returncode == 0, out
    return folder, out


@pytest.fixture
def opened(ran, monkeypatch):
    monkeypatch.chdir(ran[0])
    return bf.open("mine", ran[0] / "bitfront-runs")


def test_a_script_without_a_guard_runs_a_search_beside_modules_called_like_ours(ran):
    _, out = ran
    assert "<search mine: complete, 3 of 3 trials, front of" in out


def test_trials_and_front_are_tables(opened):
    assert opened.state == "complete"
    assert len(opened.trials) == 3
    assert set(opened.trials.state) == {"complete"}
    assert {"plan", "val_accuracy", "flops_pct"} <= set(opened.front.columns)
    assert set(opened.front.index) <= set(opened.trials.index)
    assert opened.front.flops.is_monotonic_increasing
    assert bf.open(opened.path).trials.equals(opened.trials)


def test_figures_are_plotly_and_a_notebook_shows_the_front(opened):
    assert opened.figure("front").data
    with pytest.raises(bf.UserError, match="did you mean 'front'"):
        opened.figure("fornt")
    shown = opened._repr_html_()
    assert opened.front.index[0] in shown
    assert "plotly" in shown
    assert "<table" in shown


def test_a_point_is_exported_trained_and_loaded(opened, tmp_path):
    import torch

    recipe = opened.export(budget="100%", path=tmp_path / "recipe.yaml")
    trained = recipe.train(seeds=1, epochs=1, quiet=True)
    assert list(trained.seeds.index) == [0]
    assert 0 <= trained.mean <= 1
    net = bf.load(trained.networks[0])
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 2)
    assert net.plan == recipe.recipe.spec.plan
    with pytest.raises(bf.UserError, match="one of"):
        opened.export(budget="40%", trial="x")


def test_a_search_that_does_not_run_cannot_be_stopped(opened):
    assert opened.stop() == "not running"


def test_a_class_of_a_script_is_searched_and_the_same_call_finds_the_same_search(tmp_path):
    process = start(tmp_path, OWN_NETWORK)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    assert out.count("<search mine: complete, 2 of 2 trials") == 2


def test_a_running_search_is_opened_and_stopped_which_ends_its_script_too(tmp_path):
    process = start(tmp_path, LONG)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if " % flops" in line:
            break
    found = bf.open("mine")
    assert found.state == "running"
    assert len(found.trials)
    assert found.stop() == "stopped"
    out, _ = process.communicate(timeout=60)
    assert "went on" not in out
    assert process.returncode, "".join(lines) + out
    assert "KeyboardInterrupt: the search is kept" in out
    assert found.state == "interrupted"
