"""What is known of a paper: title, authors, venue, year and a link, each in one place. Methods,
selectors and the rows of a search name a paper by its key; listings, docs/catalog.md, MLflow and
`compare --paper` read it here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bitfront.trainables.registry import Registry


@dataclass(frozen=True)
class Paper:
    """A paper. `link` is left out where it could not be checked."""

    name: str
    """its key"""
    title: str
    authors: str
    venue: str
    """'' for one that is on arXiv only"""
    year: int
    link: str = ""
    short: str = ""
    """what the method or the study is called"""

    @property
    def place(self) -> str:
        """Venue and year."""
        return f"{self.venue} {self.year}".strip()

    @property
    def text(self) -> str:
        """The citation in a line, without the link."""
        return f"{self.authors}: {self.title}, {self.place}"

    def describe(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "key": self.name,
            "title": self.title,
            "authors": self.authors,
            "venue": self.venue,
            "year": self.year,
            "link": self.link or None,
        }


PAPERS: Registry[Paper] = Registry("paper", package=__package__)


def paper_of(text: str) -> Paper | None:
    """The paper that a text names: by its key or, as files of users may, with its title in it. None
    for a paper that is not known here."""
    known = PAPERS.find()
    if text in known:
        return known[text]
    plain = _plain(text)
    named = [paper for paper in known.values() if _plain(paper.title) in plain]
    # A title may be part of another one.
    return max(named, key=lambda paper: len(paper.title), default=None)


def citation(text: str) -> str:
    """The citation of the paper that a text names; the text itself for one that is not known."""
    found = paper_of(text)
    return text if found is None else found.text


def _plain(text: str) -> str:
    """The text in letters and digits, for titles in another spelling."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
