"""Plans as people read them at a terminal: the letters by stage, shorter where there is no room.

The forms, longest first, for a network of three stages:

  letters  FBBBBB BBBBFF BBBBBB
  runs     FB5 B4F2 B6         a letter and how often it comes in a row
  counts   1F5B 2F4B 6B        how many layers of a stage have each level
  totals   3F15B               how many of the whole network have it
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from bitfront.trainables.plan import LEVELS

Groups = list[str]


def by_stage(plan: str, stages: Sequence[str] | None) -> Groups:
    """The letters of each stage; `stages` has one for every layer. All letters together where the
    stages are not known."""
    if stages is None or len(stages) != len(plan):
        return [plan]
    pairs = zip(stages, plan, strict=True)
    groups = itertools.groupby(pairs, key=lambda pair: pair[0])
    return ["".join(letter for _, letter in members) for _, members in groups]


def letters(groups: Groups) -> str:
    """A letter per layer: `FB BBBB`."""
    return " ".join(groups)


def runs(groups: Groups) -> str:
    """Equal neighbours once, with their number."""
    return " ".join(map(_run_lengths, groups))


def counts(groups: Groups) -> str:
    """How many layers of each level a group has."""
    return " ".join(map(_counted, groups))


def totals(groups: Groups) -> str:
    """How many layers of each level there are in all."""
    return _counted("".join(groups))


FORMS: tuple[Callable[[Groups], str], ...] = (letters, runs, counts, totals)


def _run_lengths(text: str) -> str:
    found = ((letter, len(list(same))) for letter, same in itertools.groupby(text))
    return "".join(letter if n == 1 else f"{letter}{n}" for letter, n in found)


def _counted(text: str) -> str:
    return "".join(f"{n}{level}" for level in LEVELS if (n := text.count(level)))
