"""Every example of docs/python.md runs, in the order of the page. That the interface is typed is
checked by mypy, with testbed/typed_script.py."""

import os
import re
import subprocess
from pathlib import Path

import pytest

import bitfront as bf
from testbed import warm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "python.md").read_text()


def test_the_examples_of_the_page_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) > 5
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [warm.python(), "page.py"],
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
