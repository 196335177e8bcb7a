"""What the README and the docs say is what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bitfront.cli import build_parser
from bitfront.search.config.load import load_text
from bitfront.search.config.reference import reference
from bitfront.trainables.data import DATASETS
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.selectors import SELECTORS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [README, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))]


def blocks(language, text=README):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_yaml_reference_is_that_of_the_schema():
    assert (ROOT / "docs" / "yaml.md").read_text() == reference()


def test_every_search_in_the_readme_is_valid():
    found = [text for text in blocks("yaml") if "task:" in text]
    assert found
    for text in found:
        load_text(text, "README.md")


@pytest.mark.parametrize("page", range(len(PAGES)))
def test_every_command_in_the_docs_parses(page):
    parser = build_parser()
    for block in blocks("bash", PAGES[page]):
        for line in block.splitlines():
            words = line.split("#")[0].split()
            if words and words[0] == "bitfront" and len(words) > 1 and "NAME" not in line:
                parser.parse_args(words[1:])


def test_the_readme_names_every_method_model_selector_and_dataset():
    for registry in (METHODS, MODELS, SELECTORS, DATASETS):
        for name in registry:
            assert f"`{name}`" in README, name


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_the_ci_script_finds_the_test_command_in_the_readme():
    found = re.search(r"<!-- test -->\n```bash\n(.+)\n```", README)
    assert found is not None
    assert "pytest" in found.group(1)
    assert "[test]" in found.group(1)


def test_the_method_of_the_contributing_page_is_complete():
    """The example of `CONTRIBUTING.md` trains and ends binary as it stands."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (code,) = blocks("python", text)
    program = (
        f"{code}\n"
        "from bitfront.trainables.training.loop import Training\n"
        "from bitfront.trainables.training.parts import search_data\n"
        "from bitfront.trainables.task import Task, TrialSpec\n"
        "task = Task(dataset='digits', model={'name': 'mlp', 'depth': 3}, epochs=1)\n"
        "spec = TrialSpec(task=task, method='triangle', plan='BB')\n"
        "training = Training(spec, *search_data(task))\n"
        "training.epoch()\n"
        "training.network.verify()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_cluster_file_is_yaml_with_what_ray_wants():
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    assert {"cluster_name", "provider", "available_node_types", "head_node_type"} <= set(cluster)
