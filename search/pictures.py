"""The functions that draw what a search writes into its folder and sends to MLflow. `search` draws
nothing itself: the caller that starts a search passes them in
(`dashboards.search_files.PICTURES`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitfront.search.results.results import Results

SearchFiles = Callable[["Results"], dict[str, str | Path]]
"""Writes the figures of a search into its folder; returns the files by name."""
TrialPicture = Callable[[dict[str, Any], str, Path], Path]
"""Draws (data, title, path) and returns the path."""
SelectionPictures = Callable[[Sequence[Mapping[str, Any]], str, str, Path], None]
"""Writes (rows, title, label of the scores, path without suffix)."""


def _no_files(_results: Results) -> dict[str, str | Path]:
    return {}


def _no_pictures(rows: Sequence[Mapping[str, Any]], title: str, label: str, stem: Path) -> None:
    pass


@dataclass(frozen=True)
class Pictures:
    """The functions that draw; by default nothing is drawn."""

    of_search: SearchFiles = _no_files
    of_selection: SelectionPictures = _no_pictures
    of_trial: Mapping[str, TrialPicture] = field(default_factory=dict)
    """by the name under which a finished trial reports its data (`trainables.training.pictures`)"""


NO_PICTURES = Pictures()
