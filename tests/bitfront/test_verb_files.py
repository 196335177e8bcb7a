"""A verb is a file: found without being imported, and added without editing another one."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bitfront.verb_files import FOLDER, find_verbs, group_titles

ROOT = Path(__file__).parents[2]
HELLO = '''"""Greet somebody.

For a test."""

from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    parser.add_argument("whom")
    parser.add_argument("--loudly", action="store_true")


def action(args: Namespace) -> int:
    print("HELLO" if args.loudly else "hello", args.whom)
    return 3
'''


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the command, beside the other rooms."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "bitfront", root / "bitfront", symlinks=True)
    for room in ("dashboards", "search", "spaces", "trainables"):
        (root / room).symlink_to(ROOT / room)
    return root


def call(root, *words):
    command = [sys.executable, "-m", "bitfront.cli", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_a_new_verb_is_one_new_file(copy):
    (copy / "bitfront" / "verbs" / "catalog" / "hello.py").write_text(HELLO)
    assert "hello       greet somebody\n" in call(copy, "--help").stdout
    assert "--loudly" in call(copy, "hello", "--help").stdout
    done = call(copy, "hello", "world", "--loudly")
    assert (done.returncode, done.stdout) == (3, "HELLO world\n")
    assert "did you mean 'hello'?" in call(copy, "helo").stderr
    assert "did you mean '--loudly'?" in call(copy, "hello", "x", "--loudy").stderr


def test_help_imports_no_verb_and_a_verb_no_other_group(copy):
    (copy / "bitfront" / "verbs" / "catalog" / "broken.py").write_text(
        '"""Raise an error when it is imported."""\n\nraise RuntimeError\n'
    )
    assert "broken" in call(copy, "--help").stdout
    assert call(copy, "methods", "--json").returncode == 0


def test_every_verb_has_options_an_action_and_a_help_line():
    for verb in find_verbs().values():
        tree = ast.parse((FOLDER / verb.group / f"{verb.name}.py").read_text())
        made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert {"options", "action"} <= made, verb.name
        assert verb.summary.endswith("."), verb.name
        assert len(verb.help) > 8, verb.name


def test_every_group_has_a_title_and_few_verbs():
    for group, title in group_titles().items():
        assert title, group
        assert 0 < sum(verb.group == group for verb in find_verbs().values()) <= 15
