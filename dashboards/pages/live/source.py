"""The interface through which the live page reads searches. `server.HomeSource` implements it for
the searches of a home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from bitfront.search.results.view import SearchView


class Listed(NamedTuple):
    """A search in the list of the page."""

    name: str
    label: str


class Source(Protocol):
    """The searches that a page shows. No method raises: an error is returned as a sentence."""

    def searches(self) -> Sequence[Listed]:
        """All searches, the newest first."""

    def version(self, name: str) -> str:
        """A text that changes whenever the search has changed."""

    def turn(self, name: str) -> str:
        """A text that changes whenever running trials of the search have reported."""

    def look(self, name: str) -> SearchView | str:
        """The search as it is now, or a sentence that says why it cannot be shown."""

    def importance(self, name: str) -> Mapping[str, float] | None:
        """By setting, its share in the variance of the quality (`results.importance`); None while
        that is estimated."""
