"""Pictures, one per file, in folders by what they show. A kind of `bitfront figure` is declared in
the file of its picture: a class with a `name`, registered in `FIGURES`. Listing them imports no
plotting library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bitfront.search.results.view import SearchView
from bitfront.trainables.registry import Registry


@dataclass(frozen=True)
class Subject:
    """What a figure is drawn from. A search or a checkpoint is read when the figure asks for it."""

    view: Callable[[], SearchView]
    """the search, which has a front"""
    checkpoint: Callable[[], Path]
    """a packed checkpoint: the one named, or the newest of the search"""
    title: str | None = None
    """instead of the figure's own title"""
    layer: str | None = None
    """only this layer, where a figure shows layers"""

    def titled(self, own: str) -> str:
        """The title: the given one, which may be empty, or the figure's own."""
        return own if self.title is None else self.title


class Figure(Protocol):
    """A kind of figure for a paper."""

    name: str
    doc: str
    """one line: what it shows"""

    @staticmethod
    def draw(subject: Subject, path: Path) -> None:
        """Write the figure as pdf, svg or png, by the name of the file."""


FIGURES: Registry[type[Figure]] = Registry(
    "figure", package="bitfront.dashboards.figures", nested=True
)
