"""The versions that CI passed with and the bounds of pyproject.toml agree, and the lowest ones that
are tried by hand are those of pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from benchmarks import lowest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What CI installs: `.[test]`, and the drivers that come with it.
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *PROJECT["optional-dependencies"]["test"],
    *PROJECT["optional-dependencies"]["postgres"],
]


def test_the_newest_changes_are_those_of_this_version():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == Version(PROJECT["version"]).base_version


def pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_ci_passed_with_a_version_that_is_allowed(requirement):
    versions = {canonicalize_name(p.partition("==")[0]): p.partition("==")[2] for p in pinned()}
    wanted = Requirement(requirement)
    assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)], prereleases=True)


def test_constraints_are_versions_and_nothing_else():
    """No path or address of the machine they were written on, and no package twice."""
    assert [line for line in pinned() if not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!-]+", line)] == []
    names = [canonicalize_name(line.partition("==")[0]) for line in pinned()]
    assert len(names) == len(set(names))
    assert "bitfront" not in names
    assert "mlflow==3.18.0" not in pinned()


def test_ci_installs_with_the_constraints():
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(r'PIP_CONSTRAINT="\$work/constraints.txt"', script)
    assert script.index("PIP_CONSTRAINT") < script.index('bash -euo pipefail -c "$command"')


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_every_dependency_has_a_lower_bound_that_is_tried(requirement):
    wanted, tried = Requirement(requirement), Requirement(lowest.lowest(requirement))
    (bound,) = [s for s in wanted.specifier if s.operator == ">="]
    assert {Version(s.version) for s in tried.specifier} == {Version(bound.version)}
    assert (tried.name, tried.extras) == (wanted.name, wanted.extras)
    assert lowest.lowest(requirement) in lowest.pins()


def test_what_the_lowest_versions_are_tried_with_is_there():
    assert [test for test in lowest.TESTS if not (ROOT / test).exists()] == []
