"""Whole searches on data of the user's own, run as a user runs them: real Ray workers, which get
arrays from the driver, or the code itself where it comes with a loss or is read for every batch."""

import json
import subprocess

import pytest

from testbed import warm

pytestmark = pytest.mark.slow

DATA = """\
import torch
from torch.utils.data import Dataset

X = torch.randn(120, 6, generator=torch.Generator().manual_seed(0))


def classes():
    return (X[:100], (X[:100, 0] > 0).long()), (X[100:], (X[100:, 0] > 0).long())


def f1(outputs, targets):
    found = outputs > 0
    both = (found & (targets > 0.5)).sum()
    return float(2 * both / (found.sum() + targets.sum() + 1e-9))


class Noisy(Dataset):
    def __init__(self, first, last):
        self.rows = range(first, last)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        x = X[self.rows[i]]
        return x + 0.1 * torch.randn(6), (x[:4] > 0).float()


def own():
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    return {"train": Noisy(0, 80), "val": Noisy(80, 120), "metric": f1, "loss": loss}
"""

SEARCH = """\
task:
  dataset: my_data.py:NAME
  model: {name: mlp, depth: 4, width: 16}
  epochs: 2
  batch_size: 16
space:
  method: [bnn]
  plan: {per: layer, levels: [F, B]}
search: {sampler: random, trials: 3}
tracking: {enabled: false}
"""


@pytest.fixture
def bitfront(tmp_path):
    """Runs a verb in a folder of the user's; returns its output and its errors."""
    (tmp_path / "my_data.py").write_text(DATA)
    for name in ("classes", "own"):
        (tmp_path / f"{name}.yaml").write_text(SEARCH.replace("NAME", name))

    def run(*words, code=0):
        command = [warm.python(), "-m", "bitfront.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, done.stderr

    return run


def front(bitfront, name):
    return json.loads(bitfront("front", name, "--json")[0])


def test_a_search_on_arrays_from_yaml_to_a_tested_network(bitfront, tmp_path):
    out, _ = bitfront("run", "classes.yaml")
    said = " ".join(out.split())
    assert "data my_data.py:classes: x 6 from" in said
    assert said.index("data my_data.py:classes") < said.index("3/3 trials")
    assert "100 training examples, 20% of them for validation, 20 for the test" in said
    found = front(bitfront, "classes")
    assert found["objectives"] == {"val_accuracy": "max", "flops": "min"}
    bitfront("export", "classes", "--knee", "-o", "recipe.yaml")
    out, _ = bitfront("train", "recipe.yaml", "--epochs", "2", "--seeds", "1")
    assert "test accuracy" in out
    assert "on 100 examples" in " ".join(out.split())


def test_a_search_by_a_metric_and_a_loss_of_their_own(bitfront, tmp_path):
    out, errors = bitfront("run", "own.yaml")
    assert "own has no test part: bitfront train will report" in " ".join(errors.split())
    assert "0 failed" in out
    found = front(bitfront, "own")
    assert found["objectives"] == {"val_f1": "max", "flops": "min"}
    assert all(0 <= point["val_f1"] <= 1 for point in found["points"])
    bitfront("export", "own", "--knee", "-o", "recipe.yaml")
    out, _ = bitfront("train", "recipe.yaml", "--epochs", "2", "--seeds", "1")
    assert "validation f1" in out
    assert "on 80 examples" in " ".join(out.split())
    (tmp_path / "my_data.py").unlink()
    assert front(bitfront, "own") == found
    bitfront("status")
    bitfront("report", "own")
