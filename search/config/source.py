"""Reading a search YAML with the line of every key, so that errors can point at it, and changing
it by `--set`. What the keys mean is not known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bitfront.search.config.errors import KeyPath
from bitfront.trainables.errors import UserError
from bitfront.trainables.text_files import MOST_YAML_BYTES, TooLargeError, load_yaml, read_text

EXAMPLES = "a search needs at least task.dataset and task.model; docs/yaml.md has every key"


# Sections that may be written as a single word, and the key that the word is the value of.
_SHORT_FOR = {
    "model": "name",
    "optimizer": "name",
    "schedule": "shape",
    "pretrain": "checkpoint",
    "distill": "kind",
    "device": "table",
}


@dataclass
class Source:
    """The data of a YAML file (or of command-line overrides) and where each key stands."""

    name: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overridden: dict[KeyPath, str] = field(default_factory=dict)
    """keys that an option has set, and that option"""
    written: dict[KeyPath, str] = field(default_factory=dict)
    """single values as they stand in the file"""

    def where(self, path: KeyPath) -> str:
        """`file:line` of the key, or of the nearest one above it that is written down."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.overridden:
                return self.overridden[path[:end]]
            if path[:end] in self.lines:
                return f"{self.name}:{self.lines[path[:end]]}"
        return self.name


def read(path: Path) -> Source:
    """The data of a YAML file with their lines."""
    return parse(read_text(path, MOST_YAML_BYTES), str(path))


def parse(text: str, name: str) -> Source:
    """The data of a YAML text with their lines; messages call the text `name`."""
    data, node = load_yaml(text, name)
    if data is None:
        raise UserError(f"{name}: the file is empty", EXAMPLES)
    if not isinstance(data, dict):
        what = "a list" if isinstance(data, list) else "a single value"
        raise UserError(f"{name}:1 should be keys and values such as 'name: x', not {what}")
    source = Source(name, data)
    _note_lines(node, (), source)
    return source


def value(text: str) -> Any:
    """The value of `--set key=value`, as it would be read from a file; what is no YAML is text."""
    try:
        return load_yaml(text, "--set")[0]
    except TooLargeError:
        raise
    except UserError:
        return text


def _note_lines(node: Any, path: KeyPath, source: Source) -> None:
    """Note the line of every key below a node, and refuse a key that is given twice."""
    source.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, child in node.value:
            name = str(key.value)
            if name in seen:
                line = key.start_mark.line + 1
                dotted = ".".join(map(str, (*path, name)))
                raise UserError(f"{source.name}:{line} {dotted}: the key is given twice")
            seen.add(name)
            source.lines[(*path, name)] = key.start_mark.line + 1
            _note_lines(child, (*path, name), source)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _note_lines(child, (*path, index), source)
    elif isinstance(node, yaml.ScalarNode):
        source.written[path] = node.value


def override(source: Source, assignments: Sequence[str]) -> None:
    """Apply `--set a.b=c` in place. Below `space` the rest of the path is one key, since the
    names of parameters have dots of their own."""
    for text in assignments:
        key, equals, written = text.partition("=")
        if not equals or not key:
            raise UserError(f"--set {text}: write it as key=value")
        parts = key.strip().split(".")
        if parts[0] in ("space", "limits", "objectives") and len(parts) > 2:
            parts = [parts[0], ".".join(parts[1:])]
        node = source.data
        for parent in parts[:-1]:
            below = node.get(parent)
            if isinstance(below, str) and parent in _SHORT_FOR:
                below = {_SHORT_FOR[parent]: below}
            if below is None:
                below = {}
            if not isinstance(below, dict):
                raise UserError(f"--set {text}: '{parent}' is a single value, it has no keys")
            node[parent] = below
            node = below
        node[parts[-1]] = value(written)
        source.overridden[tuple(parts)] = "--set"
