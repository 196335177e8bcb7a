"""The folders of examples/, each copied and run with the commands of examples/README.md."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

import bitfront as bf
from testbed.pages import blocks, run

# Whole searches by fresh commands: on busy cores they take several times their usual minute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parent.parent / "examples"
README = (EXAMPLES / "README.md").read_text()
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
SEARCHES = sorted(EXAMPLES.glob("*/search.yaml"))


def commands(name):
    section = re.split(r"^## ", README, flags=re.MULTILINE)[1:]
    (text,) = (part for part in section if part.startswith(f"{name}\n"))
    (block,) = blocks(text)
    return block.content


@pytest.fixture
def follow(tmp_path):
    """Runs the commands of an example in a copy of its folder; the folder and what was printed."""

    def follow(name):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
        printed = run(commands(name), tmp_path)
        for path in (EXAMPLES / name).glob("*.py"):
            assert (tmp_path / name / path.name).read_bytes() == path.read_bytes()
        return tmp_path / name, printed

    return follow


def test_every_folder_is_on_the_page():
    assert sorted(re.findall(r"^## (\w+)$", README, flags=re.MULTILINE)) == FOLDERS


@pytest.mark.parametrize("path", SEARCHES, ids=lambda path: path.parent.name)
def test_a_search_is_at_most_eight_lines_of_yaml(path):
    assert len(path.read_text().splitlines()) <= 8
    assert yaml.safe_load(path.read_text())["search"]["trials"] <= 6


def test_a_search_is_at_most_six_lines_of_python():
    lines = (EXAMPLES / "folder" / "search.py").read_text().splitlines()
    assert len([line for line in lines if line]) <= 6


def test_no_network_knows_bitfront():
    for path in EXAMPLES.glob("*/my_*.py"):
        assert "bitfront" not in path.read_text(), path


def complete(name):
    """A search of the home, all of whose trials are complete."""
    search = bf.open(name)
    assert search.state == "complete"
    assert set(search.trials["state"]) == {"complete"}
    assert len(search.front) > 0
    return search


def trained(folder):
    """The packed networks of `recipe-trained`, loaded."""
    return [bf.load(path) for path in sorted((folder / "recipe-trained").glob("*.safetensors"))]


def test_a_network_and_a_folder_of_images(follow):
    from PIL import Image

    folder, _ = follow("folder")
    by_yaml, by_python = complete("shapes"), complete("shapes-python")
    assert by_python.front.index.size > 0
    assert by_yaml.front["val_accuracy"].max() > 0.4
    (net,) = trained(folder)
    image = Image.open(folder / "images" / "circle" / "000.png")
    assert net(net.preprocess(image)).shape == (1, 4)


def test_a_network_for_sensors(follow):
    _, printed = follow("sensor")
    assert complete("gaits").front["val_accuracy"].max() > 0.5
    assert "Front of gaits" in printed


def test_a_table_with_its_own_metric_and_loss(follow):
    folder, printed = follow("tabular")
    assert complete("rare-cases").front["val_balanced_accuracy"].max() > 0.7
    assert "balanced" in printed
    assert len(trained(folder)) == 2


def test_a_network_of_timm_from_a_checkpoint(follow):
    folder, _ = follow("timm")
    assert complete("fine-tuned").front["val_accuracy"].max() > 0.9
    assert len(trained(folder)) == 1


def test_methods_of_ones_own(follow):
    folder, _ = follow("own_method")
    methods = set(complete("my-methods").trials["method"])
    assert any("my_method.py:" in method for method in methods)
    assert (folder / "layers.pdf").stat().st_size > 1000


def test_binarize_in_a_plain_loop(follow):
    _, printed = follow("own_loop")
    accuracy = float(re.search(r"test accuracy ([\d.]+)", printed).group(1))
    assert accuracy > 0.6
    assert "the same outputs: True" in printed


def test_the_notebook(follow):
    folder, _ = follow("notebook")
    cells = json.loads((folder / "digits.ipynb").read_text())["cells"]
    shown = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [output for output in shown if output["output_type"] == "error"]
    tables = [output for output in shown if "text/html" in output.get("data", {})]
    assert any("<table" in "".join(output["data"]["text/html"]) for output in tables)
    assert complete("notebook").front["val_accuracy"].max() > 0.5
