"""What every test shares: one thread per process, searches that stay in the test's folder, and a
small search whose trials take milliseconds."""

import atexit
import compileall
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# What bitfront remembers of its user, also where a fixture of a module runs it.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="bitfront-config")
os.environ.pop("MLFLOW_TRACKING_URI", None)
os.environ.pop("BITFRONT_HOME", None)

import pytest

from bitfront.search.config.load import load_text
from testbed.stores import read_scripts_once

atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)
read_scripts_once()
atexit.register(gc.unfreeze)  # or extension modules report leaks

TINY = """\
name: tiny
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 3
  batch_size: 32
  subset: 200
  optimizer: {name: adam, lr: 0.01}
space:
  method: [bnn, bnn++]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.001, 0.03], log: true}
  bnn++.mu_end: {float: [10, 100], log: true}
search: {sampler: random, trials: 6, seed: 0}
"""


def pytest_configure(config):
    """Compile our modules once where the environment forbids Python to write what it compiles:
    every fresh process would take a third of a second for it."""
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        root = Path(__file__).parent.parent
        for room in ("bitfront", "dashboards", "search", "spaces", "trainables", "testbed"):
            compileall.compile_dir(root / room, quiet=2)


def pytest_collection_modifyitems(items):
    """`pytest -m fast`: all tests but those of files that are marked slow. Slow files begin first,
    of them those about the whole product: no process is left alone with one at the end."""
    here = Path(__file__).parent
    for item in items:
        if item.get_closest_marker("slow") is None:
            item.add_marker("fast")
    items.sort(key=lambda item: (not item.get_closest_marker("slow"), item.path.parent != here))


@pytest.fixture(autouse=True, scope="module")
def _whole_heap_is_not_searched_for_garbage():
    """What is there when a file begins stays, above all libraries: millions of objects, which every
    collection of garbage would look at. Actors collect before every trial, for which it took half
    of the time of all tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path / "bitfront-runs"))


@pytest.fixture(autouse=True)
def _nothing_named(tmp_path, monkeypatch):
    """What the user has named, and which secrets were seen, is not passed on between tests; nor is
    the ledger a command was given, which it keeps in the environment."""
    monkeypatch.setenv("BITFRONT_LEDGER", "")
    monkeypatch.delenv("BITFRONT_LEDGER")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for place in ("named._now", "urls._known"):
        monkeypatch.setattr(f"bitfront.search.{place}", set())
    monkeypatch.setattr("bitfront.search.named._given", {})
    monkeypatch.setattr("bitfront.trainables.own_code.trusted._now", {})
    monkeypatch.setattr("bitfront.trainables.own_code.trusted._all", False)
    monkeypatch.setattr("bitfront.trainables.own_code.places._folders", [])


@pytest.fixture
def tiny_yaml():
    return TINY


@pytest.fixture
def make_config():
    """A configuration from the tiny YAML and overrides."""

    def make(*assignments, text=TINY):
        return load_text(text, "tiny.yaml", assignments)[0]

    return make


@pytest.fixture
def make_space():
    """A configuration as above, and its space."""

    def make(*assignments, text=TINY):
        return load_text(text, "tiny.yaml", assignments)

    return make
