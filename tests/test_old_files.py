"""What version 0.1 wrote still opens: a ledger, a recipe, a packed network."""

import json
import shutil
from pathlib import Path

import pytest

from bitfront.cli import main
from bitfront.search.recipes.recipe import load_recipe
from bitfront.trainables import packed
from bitfront.trainables.data import load_test
from bitfront.trainables.training.evaluation import evaluate

OLD = Path(__file__).parent / "data" / "v0.1"
# As 0.1 printed them: trial, plan, validation accuracy, flops.
FRONT = [
    ("626e88db", "BBB", 0.26875, 611),
    ("323e0e4b", "WBW", 0.41875, 673),
    ("0c4bacdb", "WFB", 0.4875, 705),
    ("5ef54494", "WFW", 0.725, 736),
]


@pytest.fixture
def home(tmp_path):
    shutil.copytree(OLD / "old-search", tmp_path / "old-search")
    return tmp_path


def test_the_front_of_an_old_ledger_is_what_it_was(home, capsys):
    assert main(["front", "old-search", "--home", str(home), "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    found = [(p["trial"], p["plan"], p["val_accuracy"], round(p["flops"])) for p in points]
    assert sorted(found) == sorted(FRONT)


def test_an_old_search_is_complete_and_exports(home, tmp_path, capsys):
    assert main(["status", "old-search", "--home", str(home), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["state"] == "complete"
    assert status["trials"]["complete"] == 10
    out = tmp_path / "again.yaml"
    words = ["export", "old-search", "--home", str(home), "--trial", "626e88db", "-o", str(out)]
    assert main(words) == 0
    assert load_recipe(out).spec == load_recipe(OLD / "recipe.yaml").spec


def test_an_old_packed_network_reaches_the_accuracy_it_was_stored_with():
    network, spec, notes = packed.load(OLD / "recipe-trained" / "seed0.safetensors")
    stored = json.loads((OLD / "recipe-trained" / "seed0.json").read_text())
    measured = evaluate(network, load_test(spec.task.dataset))
    assert notes["test_accuracy"] == stored["metrics"]["test_accuracy"]
    assert measured["val_accuracy"] == pytest.approx(notes["test_accuracy"], abs=1e-9)
