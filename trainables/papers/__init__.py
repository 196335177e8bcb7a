"""Papers by key: `PAPERS`. Each is declared in a file of this folder."""

from bitfront.trainables.papers.base import PAPERS, Paper, citation, paper_of

__all__ = ["PAPERS", "Paper", "citation", "paper_of"]
