"""Imports live under one roof: an installed bitfront occupies one name, and a user's own modules of
the rooms' names are theirs."""

import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
ROOMS = ("dashboards", "search", "spaces", "trainables")


def test_modules_of_the_user_with_the_names_of_rooms_break_nothing(tmp_path):
    for room in ROOMS:
        (tmp_path / f"{room}.py").write_text("raise RuntimeError('mine')\n")
    done = subprocess.run(
        [sys.executable, "-m", "bitfront.cli", "validate"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "valid" in done.stdout) == (0, True), done.stderr


@pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools is not installed here")
def test_a_wheel_holds_every_room_under_one_name(tmp_path):
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("bitfront", *ROOMS):
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=ignored)
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tree)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "-w", str(tmp_path), str(tree)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"bitfront"}
    missing = {
        f"bitfront/{file.relative_to(ROOT)}"
        for room in ROOMS
        for suffix in ("py", "pyi", "yaml", "css", "js")
        for file in (ROOT / room).rglob(f"*.{suffix}")
    } - set(names)
    assert missing == set()
