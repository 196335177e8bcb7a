"""Every example of docs/python.md runs, in the order of the page; a typed script passes mypy."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bitfront as bf

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "python.md").read_text()
TYPED = """\
import bitfront as bf
import pandas as pd
import torch
from pathlib import Path
from torch import nn


class MyNet(nn.Module):
    pass


found: bf.OpenedSearch = bf.Search(
    model=MyNet, data="digits", methods=["bnn"], trials=3, epochs=2
).run(quiet=True)
front: pd.DataFrame = found.front
files: list[Path] = found.export(budget="40%").train(seeds=3).networks
net: nn.Module = bf.load(files[0])
handle = bf.binarize(MyNet(), plan="B", method="bnn++", mu_end=30)
optimizer: torch.optim.Optimizer = handle.attach(torch.optim.SGD(handle.parameters(), 0.1))
costs: dict[str, float] = bf.cost(MyNet(), "B", (3, 32, 32))
plan: str = bf.select(MyNet, "digits", budget=0.4)
size: int = bf.save(MyNet(), "net.safetensors")
"""
WRONG = """
wrong: int = bf.select(MyNet, "digits")
bf.binarize("MyNet")
"""


def test_the_examples_of_the_page_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) > 5
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "mine.safetensors").is_file()


def test_the_page_names_everything_that_is_offered():
    kinds = {"Binarized", "ExportedRecipe", "LoadedNetwork", "OpenedSearch", "TrainedRecipe"}
    for name in set(bf.__all__) - kinds:
        assert f"bf.{name}" in PAGE, name


def test_a_typed_script_passes_mypy_and_a_wrong_one_does_not(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TYPED + WRONG)
    # With the configuration of the project its cache serves this run too.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if "script.py" in line and "error" in line]
    first = TYPED.count("\n") + 2
    assert [int(line.split(":")[1]) for line in lines] == [first, first + 1], done.stdout
