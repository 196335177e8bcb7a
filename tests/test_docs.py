"""What the README and the docs say is what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bitfront.catalog_page import catalog
from bitfront.cli import build_parser
from bitfront.search.config.load import load_text
from bitfront.search.config.reference import reference

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


def test_the_catalog_is_that_of_the_registries():
    assert (ROOT / "docs" / "catalog.md").read_text() == catalog()


def test_the_readme_is_short():
    assert len(README.splitlines()) < 120


def test_the_ci_script_finds_the_test_command_in_the_readme():
    found = re.search(r"<!-- test -->\n```bash\n(.+)\n```", README)
    assert found is not None
    assert "pytest" in found.group(1)
    assert "[test]" in found.group(1)


# What a file of the contributing page must be good for, after it was imported.
TRAIN = """
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.task import Task, TrialSpec
task = Task(dataset='digits', model={model}, epochs=1)
training = Training(TrialSpec(task=task, method='{method}', plan='{plan}'), *search_data(task))
training.epoch()
training.network.verify()
"""
ORDER = """
from bitfront.trainables.cost import cost_table
table = cost_table('cresnet', {'depth': 8}, (1, 8, 8), 10)
assert list(Largest().order(table, 0))[0] == len(table.plan_layers) - 1
"""
EXAMPLES = {
    "trainables/methods/triangle.py": TRAIN.format(
        model={"name": "mlp", "depth": 3}, method="triangle", plan="BB"
    ),
    "trainables/models/hourglass.py": TRAIN.format(
        model={"name": "hourglass", "width": 16}, method="bnn", plan="B"
    ),
    "trainables/selectors/largest.py": ORDER,
    "search/samplers/quasi_random.py": "assert QuasiRandom.make(0, None).sample_relative",
    "bitfront/verbs/catalog/samplers.py": "assert action(Namespace(pattern='*')) == 0",
}


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_files_of_the_contributing_page_are_complete(path):
    """The examples of `CONTRIBUTING.md` work as they stand."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (code,) = [block for block in blocks("python", text) if block.startswith(f"# {path}")]
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{EXAMPLES[path]}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_file_of_the_contributing_page_is_tried():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert {block.splitlines()[0][2:] for block in blocks("python", text)} == set(EXAMPLES)


def test_the_cluster_file_is_yaml_with_what_ray_wants():
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    assert {"cluster_name", "provider", "available_node_types", "head_node_type"} <= set(cluster)


def test_the_hooks_before_a_commit_fetch_nothing():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}
    names = {hook["id"] for repo in hooks["repos"] for hook in repo["hooks"]}
    assert names == {"ruff-check", "ruff-format", "mypy"}
