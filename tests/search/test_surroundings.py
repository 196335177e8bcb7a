"""What other libraries do on their own: nothing is told to their makers, they need no HOME that
takes files, and import nothing from the current folder."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ASKED = """
import bitfront.search.tracking.mirror
from mlflow.environment_variables import MLFLOW_DISABLE_TELEMETRY
from ray._common.usage.usage_lib import usage_stats_enabled
print(MLFLOW_DISABLE_TELEMETRY.get(), usage_stats_enabled())
"""
TELEMETRY = ("MLFLOW_DISABLE_TELEMETRY", "RAY_USAGE_STATS_ENABLED", "DO_NOT_TRACK")


@pytest.mark.parametrize(
    ("asked", "told"),
    [({}, "True False"), ({"MLFLOW_DISABLE_TELEMETRY": "false"}, "False False")],
)
def test_nobody_is_told_how_a_search_goes_unless_asked_for(asked, told):
    env = {k: v for k, v in os.environ.items() if k not in TELEMETRY} | asked
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == told.split()


@pytest.mark.timeout(300)
def test_a_search_needs_no_home_of_its_user_and_imports_no_file_beside_it(tmp_path, tiny_yaml):
    """As root every folder can be written, so HOME is below a file. The path of the installed
    command does not have the current folder: `-P`; nor has that of its workers."""
    for name in ("rich", "types", "yaml", "dashboards", "search", "spaces", "trainables"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/{name}-executed', 'w')\n")
    (tmp_path / "tiny.yaml").write_text(tiny_yaml)
    (tmp_path / "file").touch()
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MPLCONFIGDIR", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE")
        and not name.startswith("XDG_")
    }
    home = {"HOME": str(tmp_path / "file" / "home"), "BITFRONT_HOME": str(tmp_path / "runs")}
    env = kept | home

    def call(*words):
        command = [sys.executable, "-P", "-m", "bitfront.cli", *words]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)

    done = call("run", "tiny.yaml", "--trials", "2", "--set", "task.epochs=1")
    assert list(tmp_path.glob("*-executed")) == []
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "pictures were not made" not in done.stdout
    assert (tmp_path / "runs" / "tiny" / "front.png").exists()
    drawn = call("figure", "tiny", "-o", "front.pdf")
    assert (drawn.returncode, drawn.stderr) == (0, "")
