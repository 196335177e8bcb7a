"""Mistakes in a search YAML: at a key while they are collected, and together, with file and line,
when they are reported. What the messages of pydantic become is in `mistakes`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bitfront.trainables.errors import UserError

KeyPath = tuple[str | int, ...]
"""The keys and indices that lead to a value of the YAML, outermost first."""


class ConfigError(UserError):
    """One or more mistakes in a search YAML, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class KeyProblem(Exception):  # noqa: N818 (collected more often than raised)
    """A mistake at a key, before its line is known."""

    def __init__(self, path: KeyPath, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class Problems(list[KeyProblem]):
    """The mistakes collected so far."""

    def add(self, path: KeyPath, message: str) -> None:
        """Note a mistake at a key."""
        self.append(KeyProblem(path, message))

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Note what is raised inside as a mistake at `path`, unless it names a key itself."""
        try:
            yield
        except KeyProblem as problem:
            self.append(problem)
        except UserError as error:
            self.add(path, without_key(str(error), path))


def without_key(message: str, path: KeyPath) -> str:
    """The message without the key that errors of the registries begin with: the line that is
    printed names it already."""
    dotted = ".".join(str(p) for p in path)
    for prefix in (dotted, dotted.partition(".")[2], str(path[-1]), "model"):
        if message.startswith(prefix + ": "):
            return message[len(prefix) + 2 :]
    return message
