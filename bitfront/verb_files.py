"""Finds the verbs in the folders of `bitfront.verbs` without importing them: a verb is called like
its file, its help is the first line of the file's docstring, its group is its folder."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "verbs"
PACKAGE = "bitfront.verbs"
# The groups in the order a newcomer needs them; other folders follow by name.
ORDER = ("searching", "results", "final", "cluster", "catalog")


@dataclass(frozen=True)
class Verb:
    """A verb as `bitfront --help` lists it. Its file has `options(parser)` and
    `action(args) -> exit code`."""

    name: str
    group: str
    summary: str
    """the first line of the file's docstring"""

    @property
    def module(self) -> str:
        return f"{PACKAGE}.{self.group}.{self.name}"

    @property
    def help(self) -> str:
        """The summary as an entry of a list: no capital letter, no full stop."""
        return self.summary[:1].lower() + self.summary[1:].rstrip(".")


@cache
def group_titles() -> dict[str, str]:
    """The title of every folder with verbs, in the order of the help."""
    found = {file.parent.name: _first_line(file).rstrip(".") for file in _files("__init__.py")}
    known = [group for group in ORDER if group in found]
    return {group: found[group] for group in [*known, *sorted(set(found) - set(known))]}


@cache
def find_verbs() -> dict[str, Verb]:
    """Every verb by its name, in the order of the help."""
    files = sorted(f for f in _files("*.py") if not f.name.startswith("_"))
    verbs = [Verb(file.stem, file.parent.name, _first_line(file)) for file in files]
    return {verb.name: verb for group in group_titles() for verb in verbs if verb.group == group}


def _files(pattern: str) -> list[Path]:
    return list(FOLDER.glob(f"*/{pattern}"))


def _first_line(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
