"""Samplers by name: a new one is one new file, and looking one up is quick."""

import subprocess
import sys
from typing import Any

import pytest

from bitfront.search import samplers
from bitfront.search.samplers.registry import SAMPLERS, Sampler
from bitfront.trainables.errors import UnknownNameError
from bitfront.trainables.registry import Registry

MADE_UP = """
from testing_samplers import SAMPLERS, Sampler

@SAMPLERS.register
class Alphabetic(Sampler):
    name = "alphabetic"
    doc = "the first of everything"
"""


@pytest.mark.parametrize("name", SAMPLERS.names())
def test_a_sampler_carries_its_name_and_says_what_it_is(name):
    assert SAMPLERS.get(name).name == name
    assert len(SAMPLERS.get(name).doc) > 10


def test_an_unknown_sampler_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'free-cost'"):
        SAMPLERS.get("free_cost")


def test_a_new_file_in_the_folder_is_enough(tmp_path, monkeypatch):
    registry: Registry[type[Sampler]] = Registry("sampler", package=samplers.__name__)
    home = tmp_path / "alphabetic.py"
    home.write_text(MADE_UP)
    fake: Any = type(sys)("testing_samplers")
    fake.SAMPLERS, fake.Sampler = registry, Sampler
    monkeypatch.setitem(sys.modules, "testing_samplers", fake)
    monkeypatch.setattr(samplers, "__path__", [*samplers.__path__, str(tmp_path)])
    assert registry.get("alphabetic").doc == "the first of everything"
    sys.modules.pop("bitfront.search.samplers.alphabetic")


def test_listing_samplers_imports_neither_optuna_nor_scipy():
    code = (
        "import sys; from bitfront.search.samplers.registry import SAMPLERS; SAMPLERS.names(); "
        "print([m for m in ('optuna', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
