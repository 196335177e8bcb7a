"""docs/own.md, followed by somebody in a fresh folder: every file and command as they stand."""

import shlex
from pathlib import Path

import pytest

from bitfront.cli import build_parser
from testbed.pages import blocks, run

# Whole searches by fresh commands: on busy cores they take several times their usual minute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent
PAGE = blocks((ROOT / "docs" / "own.md").read_text())
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the commands of the page printed, by command; `there` is the folder."""
    folder = tmp_path_factory.mktemp("fresh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITFRONT_HOME", str(folder / "bitfront-runs"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        printed = {"there": str(folder)}
        for block in PAGE:
            if block.name:
                (folder / block.name).write_text(block.content)
            elif block.language == "bash" and block.note != "cluster":
                for line in block.content.splitlines():
                    printed[line] = run(line, folder, code=2 if block.note == "fails" else 0)
        return printed


def test_the_network_and_the_data_are_looked_at_before_anything_is_trained(told):
    costs = told["bitfront cost my_net.py:MyNet --shape 1x28x28 --classes 4 --plan B"]
    assert "body.0.0" in costs
    assert "4 classes" in told["bitfront datasets my_data.py:load"]


def test_a_network_that_says_the_same_to_every_example_is_refused(told):
    (said,) = (text for line, text in told.items() if "activations=keep" in line)
    assert "same" in said


def test_the_page_ends_with_a_front_a_trained_recipe_and_a_loaded_network(told):
    assert "Front of stripes" in told["bitfront front stripes --plot"]
    assert "test" in told["bitfront train recipe.yaml"]
    assert "test accuracy 0." in told["python use.py"] or "1.000" in told["python use.py"]
    assert (Path(told["there"]) / "layers.png").stat().st_size > 1000


def test_the_search_of_the_readme_runs_with_the_network_and_the_data_of_this_page(told):
    """With two trials of one epoch; its other commands as they stand."""
    section = README.partition("\n## Your own network and data\n")[2].partition("\n## ")[0]
    there = Path(told["there"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITFRONT_HOME", str(there / "bitfront-runs"))
        patch.setenv("XDG_CONFIG_HOME", str(there / "config"))
        search, commands = blocks(section)
        (there / search.name).write_text(search.content)
        *before, started = commands.content.splitlines()
        for line in before:
            run(line, there)
        said = run(f"{started} --set search.trials=2 --set task.epochs=1", there)
    assert "2/2 trials" in said


def test_the_commands_for_a_cluster_are_commands():
    (block,) = (block for block in PAGE if block.note == "cluster")
    for line in block.content.splitlines():
        build_parser().parse_args(shlex.split(line)[1:])
