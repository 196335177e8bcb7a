"""The imports point one way, and the test set is out of a search's reach."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("search", "spaces", "trainables", "dashboards")


def imports_of(path):
    """Every module a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def files_of(package):
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("trainables", {"trainables"}),
        ("spaces", {"spaces", "trainables"}),
        ("dashboards", {"dashboards", "bitfront.search.front"}),
    ],
)
def test_imports_point_one_way(package, allowed):
    for path in files_of(package):
        for module in imports_of(path):
            if module.split(".")[0] in PACKAGES:
                good = any(module == a or module.startswith(a + ".") for a in allowed)
                assert good, f"{path.relative_to(ROOT)} imports {module}"


def test_only_the_trainable_knows_ray_and_nothing_there_knows_optuna_or_mlflow():
    for path in files_of("trainables"):
        tops = {module.split(".")[0] for module in imports_of(path)}
        assert not tops & {"optuna", "mlflow"}, path
        assert "ray" not in tops or path.name == "trial.py", path


def test_only_the_mirror_and_its_viewers_know_mlflow():
    knowing = {
        path.name
        for package in PACKAGES
        for path in files_of(package)
        if any(m.split(".")[0] == "mlflow" for m in imports_of(path))
    }
    assert knowing == {"mirror.py", "runs.py", "ui.py", "doctor.py"}


def test_only_final_training_loads_a_test_set():
    using = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in files_of(package)
        if "load_test" in path.read_text() and not path.is_relative_to(ROOT / "trainables" / "data")
    }
    assert using == {"search/recipes/recipe.py"}


def test_no_pickle_is_read():
    for package in PACKAGES:
        for path in files_of(package):
            text = path.read_text()
            assert "torch.load(" not in text or "weights_only=True" in text, path
            for reader in ("pickle.load", "joblib", "dill", "allow_pickle=True", "pickled_error"):
                assert reader not in text, path
            assert "yaml.load(" not in text or "SafeLoader" in text, path
