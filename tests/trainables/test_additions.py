"""A new method, model, dataset, selector, cost, attack or diagnostic is one new file: each is put
into a copy of the tree, where nothing else is edited, and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

FILES = {
    "methods/halved.py": '''
from typing import ClassVar
from bitfront.trainables import layers
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.quantizer_pair import QuantizerPair, SCALE, ACCUMULATOR

@METHODS.register
class Halved(QuantizerPair):
    name = "halved"
    doc = "as bnn"
    params: ClassVar = {"scale": SCALE, **ACCUMULATOR}

    def pair(self):
        return layers.PAIRS["bnn"]
''',
    "models/wide.py": '''
import math
from torch import nn
from bitfront.trainables.models.base import MODELS, parameter
from bitfront.trainables.parameters import Int

@MODELS.declare("wide", image=False)
class Wide(nn.Sequential):
    """Three linear layers."""

    def __init__(self, shape, classes, *, width: int = parameter(8, Int(1, 64), "units")):
        inside = math.prod(shape)
        super().__init__(
            nn.Flatten(), nn.Linear(inside, width), nn.BatchNorm1d(width),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, classes),
        )
''',
    "data/coins.py": '''
from bitfront.trainables.data.datasets import DATASETS, DatasetInfo

def read(data_dir):
    import torch
    x = torch.rand(200, 4, generator=torch.Generator().manual_seed(0))
    return x, (x.sum(1) > 2).long()

DATASETS.add("coins", DatasetInfo(
    name="coins", shape=(4,), classes=2, train_size=200, test_size=200, mean=(0.5,) * 4,
    std=(0.3,) * 4, source="Coins.", get_hint="nothing to get", read_train=read, read_test=read,
    embedded=True,
))
''',
    "selectors/middle.py": '''
from bitfront.trainables.selectors.base import SELECTORS, Selector

@SELECTORS.register
class Middle(Selector):
    name = "middle"
    doc = "from the middle"

    def order(self, table, seed):
        n = len(table.plan_layers)
        return sorted(range(n), key=lambda i: abs(i - n / 2))
''',
    "costs/adds.py": '''
from bitfront.trainables.costs.base import COSTS, Cost

COSTS.register(Cost("adds", "additions", "one per MAC", of_layer=lambda planned: planned.macs))
''',
    "layers/diagnostics/size.py": '''
from bitfront.trainables.layers.diagnostics.base import DIAGNOSTICS, Diagnostic

def count(state):
    return float(state.layer.latent.detach().abs().sum()), state.layer.latent.numel()

DIAGNOSTICS.register(Diagnostic("latent_size", "mean |w*|", count))
''',
    "attacks/noise.py": '''
from bitfront.trainables.attacks.base import EVALUATION_ATTACKS, EvaluationAttack

def run(network, pixels, y, eps, classes):
    return pixels

EVALUATION_ATTACKS.register(EvaluationAttack("noise", "noise", run))
''',
}  # fmt: skip

USE = """
from bitfront.search.config.schema import from_source
from bitfront.search.config.source import parse
config = from_source(parse('''
name: added
task: {dataset: coins, model: wide, epochs: 1}
space: {method: halved, plan: {selector: middle, budget: [90, 50]}}
objectives: {val_accuracy: max, adds: min}
search: {trials: 2}
''', 'added.yaml'))
from bitfront.search.results.results import COST_LABELS
assert COST_LABELS["adds"] == "additions"
from bitfront.trainables.attacks import EVALUATION_ATTACKS
from bitfront.trainables.settings import AttackSpec
assert AttackSpec(eps=0.1, evaluate=["noise"]).evaluate == ["noise"]
from bitfront.trainables.tasks import metric_names
assert "val_robust_noise" in metric_names()
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training import Training, search_data
from bitfront.trainables.cost import task_cost_table
table = task_cost_table(config.task)
spec = TrialSpec(task=config.task, method="halved", plan="B" * len(table.plan_layers))
assert table.totals(spec.plan)["adds"] > 0
training = Training(spec, *search_data(config.task))
assert training.epoch()["latent_size"] > 0
training.network.verify()
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "bitfront", folder / "bitfront", ignore=ignored)
    for name, text in FILES.items():
        (folder / "bitfront" / "trainables" / name).write_text(text)
    return folder


def run(tree: Path, program: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_is_added_is_used_by_everything_that_needs_it(tree: Path) -> None:
    run(tree, USE)


@pytest.mark.parametrize(
    ("family", "registry"),
    [
        ("methods", "METHODS"),
        ("selectors", "SELECTORS"),
        ("data", "DATASETS"),
        ("costs", "COSTS"),
        ("attacks", "EVALUATION_ATTACKS"),
        ("tasks", "KINDS"),
    ],
)
def test_listing_a_family_does_not_import_torch(tree: Path, family: str, registry: str) -> None:
    run(
        tree,
        f"import sys\nfrom bitfront.trainables.{family} import {registry}\n"
        f"assert {registry}.names()\nassert 'torch' not in sys.modules",
    )
