"""A new method, model, dataset, selector, sampler, cost, diagnostic, attack, figure or verb is one
file: it is put into a copy of the tree, where nothing else is edited, used, and run through the
conformance suite of its family. So is the method of CONTRIBUTING.md, which newcomers copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
# Every one is called so, which picks its cases out of the conformance suites.
NAME = "addition"
EXAMPLE = "trainables/methods/triangle.py"
SUITES = {
    "methods": ("tests/trainables/methods/test_methods.py", 8),
    "models": ("tests/trainables/models/test_models.py", 4),
    "data": ("tests/trainables/data/test_data.py", 2),
    "selectors": ("tests/trainables/selectors/test_selectors.py", 2),
    "samplers": ("tests/search/samplers/test_samplers_conformance.py", 2),
    "costs": ("tests/trainables/test_cost.py", 1),
    "diagnostics": ("tests/trainables/layers/test_diagnostics.py", 1),
    "attacks": ("tests/trainables/training/test_attacks.py", 1),
    "figures": ("tests/search/results/test_view.py", 3),
}

FILES = {
    "trainables/methods/addition.py": '''
from typing import ClassVar
from bitfront.trainables import layers
from bitfront.trainables.methods.base import METHODS
from bitfront.trainables.methods.quantizer_pair import QuantizerPair, SCALE

@METHODS.register
class Addition(QuantizerPair):
    name = "addition"
    doc = "as bnn"
    params: ClassVar = {"scale": SCALE}

    def pair(self):
        return layers.PAIRS["bnn"]
''',
    "trainables/models/addition.py": '''
import math
from torch import nn
from bitfront.trainables.models.base import MODELS, parameter
from bitfront.trainables.parameters import Int

@MODELS.declare("addition", image=False)
class Wide(nn.Sequential):
    """Three linear layers."""

    def __init__(self, shape, classes, *, width: int = parameter(8, Int(1, 64), "units")):
        inside = math.prod(shape)
        super().__init__(
            nn.Flatten(), nn.Linear(inside, width), nn.BatchNorm1d(width),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, classes),
        )
''',
    "trainables/data/addition.py": '''
from bitfront.trainables.data.datasets import DATASETS, DatasetInfo

def read(data_dir):
    import torch
    x = torch.rand(200, 4, generator=torch.Generator().manual_seed(0))
    x = (x - x.mean(0)) / x.std(0)
    return x, (x.sum(1) > 0).long()

DATASETS.add("addition", DatasetInfo(
    name="addition", shape=(4,), classes=2, train_size=200, test_size=200, mean=(0.0,) * 4,
    std=(1.0,) * 4, source="Coins.", get_hint="nothing to get", read_train=read, read_test=read,
    embedded=True,
))
''',
    "trainables/selectors/addition.py": '''
from bitfront.trainables.selectors.base import SELECTORS, Selector

@SELECTORS.register
class Middle(Selector):
    name = "addition"
    doc = "from the middle"

    def order(self, table, seed):
        n = len(table.plan_layers)
        return sorted(range(n), key=lambda i: abs(i - n / 2))
''',
    "trainables/costs/addition.py": '''
from bitfront.trainables.costs.base import COSTS, Cost

COSTS.register(Cost("addition", "additions", "one per MAC", of_layer=lambda planned: planned.macs))
''',
    "trainables/layers/diagnostics/addition.py": '''
from bitfront.trainables.layers.diagnostics.base import DIAGNOSTICS, Diagnostic

def count(state):
    return float(state.layer.latent.detach().abs().sum()), state.layer.latent.numel()

DIAGNOSTICS.register(Diagnostic("addition", "mean |w*|", count))
''',
    "trainables/attacks/addition.py": '''
from bitfront.trainables.attacks.base import EVALUATION_ATTACKS, EvaluationAttack

def run(network, pixels, y, eps, classes):
    return pixels

EVALUATION_ATTACKS.register(EvaluationAttack("addition", "addition", run))
''',
    "dashboards/figures/trials/addition.py": '''
from bitfront.dashboards.figures import FIGURES
from bitfront.dashboards.figures.style import canvas, saved

@FIGURES.register
class Addition:
    name = "addition"
    doc = "trials by state"

    @staticmethod
    def draw(subject, path):
        figure, axes = canvas()
        counts = subject.view().counts
        axes.bar(list(counts), list(counts.values()))
        saved(figure, path)
''',
    "search/samplers/addition.py": '''
from bitfront.search.samplers.registry import SAMPLERS, Sampler

@SAMPLERS.register
class Addition(Sampler):
    name = "addition"
    doc = "as random"

    @classmethod
    def make(cls, seed, problem):
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=seed)
''',
    "verbs/catalog/addition.py": '''"""Add two numbers."""

def options(parser):
    parser.add_argument("numbers", type=int, nargs=2)

def action(args):
    print(sum(args.numbers))
    return 0
''',
}  # fmt: skip

USE = """
from bitfront.search.config.load import load_text
config, space = load_text('''
name: added
task: {dataset: addition, model: addition, epochs: 1}
space: {method: addition, plan: {selector: addition, budget: [90, 50]}}
objectives: {val_accuracy: max, addition: min}
search: {trials: 2, sampler: addition}
''', 'added.yaml')
from bitfront.search.results.results import COST_LABELS
assert COST_LABELS["addition"] == "additions"
from bitfront.trainables.attacks import EVALUATION_ATTACKS
from bitfront.trainables.settings import AttackSpec
assert AttackSpec(eps=0.1, evaluate=["addition"]).evaluate == ["addition"]
from bitfront.trainables.tasks import metric_names
assert "val_robust_addition" in metric_names()
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training import Training, search_data
from bitfront.trainables.cost import task_cost_table
table = task_cost_table(config.task)
spec = TrialSpec(task=config.task, method="addition", plan="B" * len(table.plan_layers))
assert table.totals(spec.plan)["addition"] > 0
training = Training(spec, *search_data(config.task))
assert training.epoch()["addition"] > 0
training.network.verify()
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("bitfront", "tests", "testbed"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    page = (ROOT / "CONTRIBUTING.md").read_text()
    example = re.search(rf"```python\n(# {EXAMPLE}\n.*?)```", page, flags=re.DOTALL)
    assert example is not None
    for name, text in {**FILES, EXAMPLE: example.group(1)}.items():
        (folder / "bitfront" / name).write_text(text)
    return folder


def run(tree: Path, *words: str, code: tuple[int, ...] = (0,)) -> str:
    """The output of a Python command in the copy, which ends with one of the exit codes."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode in code, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_what_is_added_is_used_by_everything_that_needs_it(tree: Path) -> None:
    run(tree, "-c", USE)


def test_an_added_verb_is_called_and_listed(tree: Path) -> None:
    assert "addition    add two numbers" in run(tree, "-m", "bitfront.cli", "--help")
    assert run(tree, "-m", "bitfront.cli", "addition", "2", "3") == "5\n"


@pytest.fixture(scope="module")
def outcomes(tree: Path) -> list[tuple[str, str, str]]:
    """(suite, case, outcome) of every case of an addition, in one run of the suites in the copy."""
    names = f"{NAME} or triangle"
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-o", "addopts=", "-rA", "-k", names]
    suites = [suite for suite, _ in SUITES.values()]
    lines = run(tree, "-m", "pytest", *options, *suites, code=(0, 1)).splitlines()
    words = (line.split(" ", 2) for line in lines if line.startswith(("PASSED ", "FAILED ")))
    return [(case.partition("::")[0], case, outcome) for outcome, case, *_ in words]


@pytest.mark.parametrize("family", SUITES)
def test_what_is_added_passes_the_conformance_suite_of_its_family(family, outcomes) -> None:
    suite, at_least = SUITES[family]
    found = [outcome for file, case, outcome in outcomes if file == suite and NAME in case]
    assert set(found) == {"PASSED"}
    assert len(found) >= at_least


def test_the_method_of_the_contributing_page_passes_at_every_level_it_gets(outcomes) -> None:
    found = {case: outcome for _, case, outcome in outcomes if "triangle" in case}
    assert {case: outcome for case, outcome in found.items() if outcome != "PASSED"} == {}
    assert any("triangle-A" in case for case in found)


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
        "-c",
        f"import sys\nfrom bitfront.trainables.{family} import {registry}\n"
        f"assert {registry}.names()\nassert 'torch' not in sys.modules",
    )
