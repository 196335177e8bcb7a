"""Writes and reads YAML and JSON. What is written reads back unchanged; a damaged or too large file
is reported in one line with its name and the line number."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from bitfront.trainables.errors import UserError, first_line, quoted

# Limits far above what a person or a search writes; files within them are read in seconds.
MOST_YAML_BYTES = 1_000_000
MOST_BYTES = 32_000_000
MOST_NODES = 20_000
MOST_DEPTH = 50
# The largest integer that databases, JSON readers and tensors all accept.
LARGEST_INTEGER = 2**63 - 1

_TAG = "tag:yaml.org,2002:"
_TAGS = {_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_UNUSED = {_TAG + name for name in ("timestamp", "value")}
# YAML 1.1 reads `1.0e-3` as a number, but `1e-3`, which people write, as a text.
_EXPONENT = re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$")
# The numbers of YAML 1.1 without those in base 60: here `1:30` is a text.
_DECIMAL = {
    _TAG + "int": re.compile(r"^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*)$"),
    _TAG + "float": re.compile(
        r"^(([-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
    ),
}
_BREAKS = re.compile("[\x85\u2028\u2029]")
_NUMBER_STARTS = list("-+0123456789")


class NoSuchFileError(UserError):
    """The file does not exist."""


class TooLargeError(UserError):
    """A file that would take too much memory and time to read."""


# --- files --------------------------------------------------------------------------------------


def whole_path(text: str | os.PathLike[str]) -> Path:
    """The absolute path that the text stands for; the file need not exist."""
    try:
        path = Path(text).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, ~nobody
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{quoted(str(text))} is no path: {reason}") from None


def read_text(path: Path, most: int = MOST_BYTES, stored: bool = False) -> str:
    """The text of a file of at most `most` bytes. `stored`: it is a file that bitfront wrote and
    must be an ordinary one, since reading a pipe in its place would block."""
    try:
        if stored and path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path}: cannot be read: not a file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except FileNotFoundError:
        raise NoSuchFileError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}") from None
    if len(content) > most:
        raise TooLargeError(f"{path}: larger than {most:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line} cannot be read: not UTF-8 text") from None


def read_json(path: Path) -> Any:
    """The value in a JSON file of ours; a UserError where it is damaged."""
    return parse_json(read_text(path, stored=True), str(path))


def parse_json(text: str | bytes, name: str) -> Any:
    """The value of a JSON text; a UserError that begins with `name` where it is damaged."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{name}:{error.lineno} damaged: {error.msg}") from None
    except (ValueError, RecursionError, TypeError) as error:
        raise UserError(f"{name}: damaged: {first_line(error)}") from None


def check_format(found: Any, known: int, what: str) -> None:
    """Raise a UserError for a format number that this version does not read. None, as in files of
    version 0.1, is accepted."""
    if found is None or (type(found) is int and 1 <= found <= known):
        return
    if type(found) is int and found > known:
        raise UserError(
            f"{what} was written by a newer bitfront (format {found}, this one reads {known})",
            "update this one: pip install --upgrade bitfront",
        )
    raise UserError(f"{what}: {quoted(found)} is no version of its format")


# --- YAML ---------------------------------------------------------------------------------------


class _SizeError(yaml.MarkedYAMLError):
    pass


class _Loader(yaml.SafeLoader):
    """A loader of the plain types of YAML that reads `1e-3` as a number and a date as text, with
    limits on size and depth."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes += 1
        self._depth += 1
        if self._nodes > MOST_NODES or self._depth > MOST_DEPTH:
            _refuse_size(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag not in _TAGS:
            shown = node.tag.replace(_TAG, "!!")
            raise ConstructorError(None, None, f"{quoted(shown)} is no type here", node.start_mark)
        try:
            made = super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception:  # a tag that does not fit: every type has its own way to fail
            kind = node.tag.removeprefix(_TAG)
            problem = f"{quoted(node.value)} is no {kind}"
            raise ConstructorError(None, None, problem, node.start_mark) from None
        if type(made) is int and abs(made) > LARGEST_INTEGER:
            problem = f"{quoted(node.value)} is too large a number (a text goes in quotes)"
            raise _SizeError(problem=problem, problem_mark=node.start_mark)
        return made


_Loader.yaml_implicit_resolvers = {
    start: [(tag, _DECIMAL.get(tag, pattern)) for tag, pattern in known if tag not in _UNUSED]
    for start, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _PlainLoader(_Loader):
    """A loader that reads exponents as version 0.1 did in the search.yaml it wrote itself."""


_Loader.add_implicit_resolver(_TAG + "float", _EXPONENT, _NUMBER_STARTS)


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes texts which `_Loader` would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        # PyYAML writes these as line breaks, and reads them back as spaces.
        style = '"' if _BREAKS.search(data) else None
        return self.represent_scalar(_TAG + "str", data, style=style)


_PlainLoader.yaml_implicit_resolvers = {
    start: [(tag, pattern) for tag, pattern in known if pattern is not _EXPONENT]
    for start, known in _Loader.yaml_implicit_resolvers.items()
}
_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_implicit_resolver(_TAG + "float", _EXPONENT, _NUMBER_STARTS)


def dump_yaml(data: Any) -> str:
    """The data as YAML that `load_yaml` reads back unchanged."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def load_yaml(
    text: str, name: str, plain: bool = False, fault: str = "not valid YAML"
) -> tuple[Any, yaml.Node | None]:
    """(data, the root node, which knows the line numbers). `plain`: exponents as in YAML 1.1;
    `fault`: how the error calls a text that cannot be read."""
    try:
        loader = (_PlainLoader if plain else _Loader)(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _check_expanded(node)
            return loader.construct_document(node), node
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or first_line(error)
        kind = TooLargeError if isinstance(error, _SizeError) else UserError
        raise kind(f"{name}{line} {fault}: {problem}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} {fault}: {first_line(error)}") from None


def _refuse_size(mark: Any) -> None:
    problem = f"more than {MOST_NODES:,} values, or nested deeper than {MOST_DEPTH}"
    raise _SizeError(problem=problem, problem_mark=mark)


def _check_expanded(root: yaml.Node) -> None:
    """Check the size of the document with every alias expanded: a few lines can stand for
    gigabytes, and an alias can contain itself."""
    known: dict[int, tuple[int, int, int]] = {}
    above: set[int] = set()

    def measure(node: yaml.Node) -> tuple[int, int, int]:
        """(values, characters, depth)"""
        if id(node) in known:
            return known[id(node)]
        if id(node) in above:
            raise _SizeError(problem="an alias stands for itself", problem_mark=node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            if any("\ud800" <= character <= "\udfff" for character in node.value):
                raise yaml.MarkedYAMLError(
                    problem="half a character (a surrogate) is no text",
                    problem_mark=node.start_mark,
                )
            return 1, len(node.value), 1
        above.add(id(node))
        pairs = isinstance(node, yaml.MappingNode)
        below = [child for each in node.value for child in (each if pairs else (each,))]
        values, characters, depth = 1, 0, 1
        for child in below:
            of_child = measure(child)
            values, characters = values + of_child[0], characters + of_child[1]
            depth = max(depth, 1 + of_child[2])
            if values > MOST_NODES or characters > MOST_YAML_BYTES or depth > MOST_DEPTH:
                _refuse_size(child.start_mark)
        above.discard(id(node))
        known[id(node)] = values, characters, depth
        return known[id(node)]

    measure(root)
