"""Every piece of code on every page is code. What it does is tested where it is run: the tours
(test_five_minutes, test_own_page, test_examples), the page on Python, files of CONTRIBUTING.md."""

import ast
import importlib.util
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

from bitfront.cli import build_parser
from bitfront.search.config.load import load_text
from bitfront.trainables.errors import UserError
from testbed.pages import blocks

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for folder in (ROOT, ROOT / "docs", ROOT / "docs" / "results", *ROOT.glob("[be][ex][na]*"))
    for path in folder.glob("*.md")
)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# The programs of others that pages call.
OTHERS = re.compile(
    r"aws|bash|cc|cd|createdb|docker|export|jupyter|kubectl|mlflow|pip|printf|psql|python(3(\.11)?)?"
    r"|ray|rm|scancel|sed|source|srun|tail"
    r"|ruff|digit"  # of our environment, and of the tutorial
)
# A command by itself, or called by `srun` or `kubectl exec`.
CALLED = r"(?:^|^srun .* |^kubectl exec .* -- )(bitfront .+)$"
# A command that is named, not called.
NAMED = ("the following arguments are required", "expected one argument")


def named(path):
    return str(path.relative_to(ROOT))


@cache
def parser():
    return build_parser()


def fault(command):
    """Why a command of bitfront is none; '' for one that is, or for one that is only named."""
    try:
        parser().parse_args(shlex.split(command, comments=True)[1:])
    except (UserError, ValueError) as error:
        return "" if any(said in str(error) for said in NAMED) else str(error)
    except SystemExit as end:  # --help
        return "" if end.code == 0 else str(end)
    return ""


def lines_of(content):
    """The commands of a block, with those that go on in the next line put together."""
    return [line for line in content.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_says_what_it_is_and_is_that(page):
    text = page.read_text()
    assert text.count("\n```") % 2 == 0
    for block in blocks(text):
        where = f"{named(page)}: {block.content[:60]}"
        if block.language == "bash":
            done = subprocess.run(["bash", "-n"], input=block.content, text=True, check=False)
            assert done.returncode == 0, where
        elif block.language == "python":
            ast.parse(block.content, where)
        elif block.language == "yaml":
            list(yaml.safe_load_all(block.content))
        else:
            assert block.language in {"text", "sql"}, where


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_of_bitfront_on_a_page_is_one(page):
    """In blocks, in lines that stand apart, and within sentences."""
    text = page.read_text()
    found = {line for b in blocks(text) if b.language == "bash" for line in lines_of(b.content)}
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    # What follows a wide gap says what the command does.
    found |= {re.split(r"\s{3,}", line)[0] for line in re.findall(r"^    (\S.*)$", plain, re.M)}
    found |= {" ".join(code.split()) for code in re.findall(r"`(bitfront [^`]+)`", plain)}
    commands = {call for line in found for call in re.findall(CALLED, line)}
    kept = {line for line in commands if " -> " not in line and " | " not in line}
    assert {line: fault(line) for line in kept if fault(line)} == {}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_else_a_page_calls_is_there(page):
    """Modules, extras of the package, files of the repository, and programs known by name."""
    for block in blocks(page.read_text()):
        for line in lines_of(block.content) if block.language == "bash" else ():
            words = line.split("#")[0].split()
            if not words or words[0].endswith("bitfront"):
                continue
            program = Path(words[0]).name
            goes_on = line.startswith(" ") or "=" in program
            assert OTHERS.fullmatch(program) or goes_on, line
            if "-m" in words and program.startswith("python"):
                module = words[words.index("-m") + 1]
                # mkdocs comes with the extra "docs", which tests do without.
                assert module in {"venv", "pytest", "mkdocs"} or importlib.util.find_spec(module), (
                    line
                )
            for extra in re.findall(r"(?:bitfront|\.)\[([\w,-]+)\]", line):
                assert set(extra.split(",")) <= set(EXTRAS), line


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_search_on_a_page_is_valid(page):
    """Those with data, a network or a table of their own are run, or loaded, by other tests."""
    for block in blocks(page.read_text()):
        said = re.sub(r"#.*", "", block.content)
        whole = block.language == "yaml" and re.search(r"^task:", said, re.MULTILINE)
        if whole and ".py:" not in said and "latency_ms" not in said:
            load_text(block.content, named(page))


def test_a_wrong_command_is_noticed():
    assert "unknown" in fault("bitfront trian recipe.yaml")
    assert "unrecognized" in fault("bitfront front NAME --plott")
    assert fault("bitfront train") == ""
