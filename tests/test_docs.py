"""What the README and the docs say is what the code does."""

import csv
import re
import subprocess
from pathlib import Path
from statistics import median

import pytest
import yaml

from bitfront.catalog_page import catalog
from bitfront.search.config.reference import reference
from bitfront.trainables.methods import METHODS
from testbed import warm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language, text=README):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_yaml_reference_is_that_of_the_schema():
    assert (ROOT / "docs" / "yaml.md").read_text() == reference()


def tables(text):
    """Every table of a page: its rows, a list of cells each."""
    lines = re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
    rows = [line if line.startswith("|") else "" for line in lines]
    found = "\n".join(rows).split("\n\n")
    split = re.compile(r"(?<!\\)\|")
    return [
        [split.split(row) for row in part.strip().splitlines()] for part in found if part.strip()
    ]


@pytest.mark.parametrize(
    "page",
    [str(p.relative_to(ROOT)) for p in (*ROOT.glob("*.md"), *ROOT.glob("[bd]*/*.md"))],
)
def test_the_rows_of_every_table_have_as_many_cells_as_its_head(page):
    """A bar in a cell, as in |w|, begins another one; an empty line ends the table."""
    for table in tables((ROOT / page).read_text()):
        broken = [row for row in table if len(row) != len(table[0])]
        assert broken == []
        assert [row[1].strip(" -:") for row in table[1:2]] == [""], table[0]


def test_the_catalog_is_that_of_the_registries():
    assert (ROOT / "docs" / "catalog.md").read_text() == catalog()


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120


def results(name):
    """The rows of a CSV of the benchmarks."""
    (path,) = (ROOT / "benchmarks" / "results").glob(name)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_of_the_readme_are_those_that_were_measured():
    """Each stands in the README as the CSV has it."""
    searches = results("search-first-*.csv")

    def share(sampler, trials, problem="synthetic-20-smooth"):
        rows = [r for r in searches if (r["problem"], r["sampler"]) == (problem, sampler)]
        return f"{100 * median(float(r[f'at {trials}']) for r in rows if r['workers'] == '8'):.1f}"

    others = ("random", "tpe", "nsga2")
    faults = results("chaos.csv")
    broken = sum(row["broken"] != "0" for row in faults)
    kills = [row for row in faults if row["fault"] == "driver killed"]
    assert [row["broken"] for row in kills] == ["0"] * 3
    rates = {r["variant"]: float(r["trials/min"]) for r in results("overhead-2cpu-*.csv")}
    (network,) = (
        r
        for r in results("inference-*.csv")
        if r["what"].startswith("resnet18") and r["threads"] == "1"
    )
    (vit,) = (
        r for r in results("memory-*.csv") if (r["model"], r["rest"]) == ("vit-b16", "float32")
    )
    told = [
        f"{share('free-cost', 50)} %",
        f"{max(share(name, 150) for name in others)} %",
        f"50 trials cover {share('free-cost', 50, 'fashion')} %",
        f"NSGA-II {share('nsga2', 150, 'fashion')} %",
        f"{sum(int(row['strikes']) for row in faults):,} faults",
        f"{len(faults) - broken} of {len(faults)} searches",
        f"{len({row['fault'] for row in faults})} kinds of faults",
        f"{sum(int(row['strikes']) for row in kills)} kills of three more searches",
        f"**{rates['bitfront']:.0f}** a minute",
        f"{rates['stock']:.0f} empty trials a minute",
        f"({rates['bare']:.0f})",
        f"{float(vit['times_smaller']):.1f} times",
        f"{float(network['times torch']):.1f} times",
        f"{float(network['onnxruntime']) / float(network['packed']):.1f} times onnxruntime",
        f"{sum('W' in METHODS.get(name).levels for name in METHODS)} methods",
    ]
    assert [number for number in told if number not in README] == []


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
task = Task(dataset='{dataset}', model={model}, epochs=1)
training = Training(TrialSpec(task=task, method='{method}', plan='{plan}'), *search_data(task))
measured = training.epoch()
training.network.verify()
"""
MLP = {"name": "mlp", "depth": 3}
TRIED = {
    "trainables/methods/triangle.py": TRAIN.format(
        dataset="digits", model=MLP, method="triangle", plan="BB"
    ),
    "trainables/models/hourglass.py": TRAIN.format(
        dataset="digits", model={"name": "hourglass", "width": 16}, method="bnn", plan="B"
    ),
    "trainables/data/rings.py": TRAIN.format(dataset="rings", model=MLP, method="bnn", plan="BB"),
    "trainables/selectors/largest.py": """
from bitfront.trainables.cost import cost_table
table = cost_table('cresnet', {'depth': 8}, (1, 8, 8), 10)
assert list(Largest().order(table, 0))[0] == len(table.plan_layers) - 1
""",
    "trainables/costs/additions.py": """
from bitfront.trainables.cost import cost_table
table = cost_table('mlp', {'depth': 3, 'width': 8}, (1, 4, 4), 10)
assert table.totals('FF')['additions'] == 16 * 8 + 2 * 8 * 8 + 8 * 10 + 3 * 8 + 10
""",
    "trainables/layers/diagnostics/latent_size.py": TRAIN.format(
        dataset="digits", model=MLP, method="bnn", plan="BB"
    )
    + "assert measured['latent_size'] > 0",
    "trainables/attacks/noise.py": """
import torch
assert EVALUATION_ATTACKS.get('noise').metric == 'val_robust_noise'
pixels = torch.rand(2, 1, 4, 4)
assert float((noise(None, pixels, None, 0.1, 2) - pixels).abs().max()) <= 0.1 + 1e-6
""",
    "dashboards/figures/trials/states.py": """
import tempfile
from types import SimpleNamespace
view = SimpleNamespace(counts={'complete': 3, 'failed': 1}, title='a search')
path = Path(tempfile.mkdtemp()) / 'states.png'
FIGURES.get('states').draw(Subject(lambda: view, None), path)
assert path.stat().st_size > 1000
""",
    "search/samplers/quasi_random.py": "assert QuasiRandom.make(0, None).sample_relative",
    "bitfront/verbs/catalog/samplers.py": "assert action(Namespace(pattern='*')) == 0",
}


def examples() -> dict[str, str]:
    """The files of `CONTRIBUTING.md` by their path, which is in their first line."""
    found = blocks("python", (ROOT / "CONTRIBUTING.md").read_text())
    return {block.splitlines()[0][2:]: block for block in found}


def test_the_files_of_the_contributing_page_work_as_they_stand():
    """All in one process; the traceback names the file."""
    programs = {path: f"{code}\n{TRIED[path]}" for path, code in examples().items()}
    program = (
        f"for path, code in {programs!r}.items():\n    exec(compile(code, path, 'exec'), {{}})"
    )
    done = subprocess.run([warm.python(), "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_file_of_the_contributing_page_is_tried():
    assert set(examples()) == set(TRIED)


def test_the_cluster_file_is_yaml_with_what_ray_wants():
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    assert {"cluster_name", "provider", "available_node_types", "head_node_type"} <= set(cluster)


def test_the_hooks_before_a_commit_fetch_nothing():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}
    names = {hook["id"] for repo in hooks["repos"] for hook in repo["hooks"]}
    assert names == {"ruff-check", "ruff-format", "mypy"}
