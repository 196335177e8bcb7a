"""The rows of a paper as trials: which points they are once selectors have run, the trainings that
are run before the sampler is asked, and what the ledger keeps of it. How rows are answered is in
`results/paper.py`."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitfront.search.config.bounds import violations
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.paper import PaperRow, PaperSpec
from bitfront.search.ledger.entry import point_of
from bitfront.spaces.setting import SettingProblem, points, selectors_of
from bitfront.spaces.space import Space
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.parameters import Value
from bitfront.trainables.task import TrialSpec

# The user attribute of the study with the notes of the rows.
ROWS = "rows"


@dataclass(frozen=True)
class RowNote:
    """What the ledger keeps of a row, so that looking at a search builds no network."""

    where: dict[str, Value]
    """its whole setting"""
    points: tuple[str, ...] = ()
    """the hashes of its points: one, or one for each draw of a random selector"""
    problem: str = ""
    """why it is not run"""

    @property
    def key(self) -> str:
        return _key(self.where)

    def as_json(self) -> dict[str, Any]:
        return {"where": self.where, "points": list(self.points), "problem": self.problem}


def notes_from_json(data: Any) -> dict[str, RowNote]:
    """The notes of a ledger by setting; a ValueError where they are damaged."""
    found = {}
    for each in data or []:
        where, hashes, problem = each["where"], each["points"], each["problem"]
        texts = (problem, *hashes)
        if not isinstance(where, dict) or not all(isinstance(text, str) for text in texts):
            raise ValueError("its rows")
        note = RowNote(where, tuple(hashes), problem)
        found[note.key] = note
    return found


def whole_setting(paper: PaperSpec, row: PaperRow) -> dict[str, Value]:
    """The values that a row names, those for all rows included."""
    return {**paper.where, **row.where}


def note_of_row(notes: Mapping[str, RowNote], paper: PaperSpec, row: PaperRow) -> RowNote | None:
    """The note of a row; None in a ledger of an older version, or before the row was added."""
    return notes.get(_key(whole_setting(paper, row)))


def _key(where: Mapping[str, Value]) -> str:
    return json.dumps(dict(where), sort_keys=True)


@dataclass(frozen=True)
class SettledRow:
    """A row of a paper, with the trials that answer it."""

    label: str
    note: RowNote
    drawn: tuple[dict[str, Any], ...] = ()
    """the drawn values of each of its points"""
    specs: tuple[TrialSpec, ...] = ()


@dataclass(frozen=True)
class Training:
    """One trial of a row."""

    id: str
    drawn: dict[str, Any]
    seed: int
    epochs: int


@dataclass(frozen=True)
class Rows:
    """The rows of a search, and those of them that a turn runs."""

    settled: Sequence[SettledRow] = ()
    trainings: Sequence[Training] = ()
    """in the order in which they are run, each once"""
    alone: bool = False
    """whether the turn ends after them"""
    ids: frozenset[str] = field(init=False)
    """of all trainings"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", frozenset(each.id for each in self.trainings))

    def notes(self, before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What the ledger is to keep of the rows; `before` is what it had, of which a turn that
        runs some rows alone leaves those that it does not know."""
        found = [row.note.as_json() for row in self.settled]
        if not self.alone:
            return found
        known = {row.note.key for row in self.settled}
        return found + [dict(note) for note in before if _key(note["where"]) not in known]

    def left(self, known: Collection[str]) -> list[Training]:
        """The trainings that are not among these trials."""
        return [each for each in self.trainings if each.id not in known]


def selectors_of_rows(
    config: SearchConfig, space: Space, chosen: Collection[str] | None
) -> set[str] | None:
    """The selectors that the rows with these labels wait for; None: all of the search."""
    paper = config.paper
    if paper is None or chosen is None:
        return None
    rows = [row for row in paper.rows if row.label in chosen]
    return set().union(*(selectors_of(space, row.where, paper.where) for row in rows))


def settle_rows(config: SearchConfig, space: Space, chosen: Collection[str] | None = None) -> Rows:
    """The rows of a search whose selectors have run. `chosen` are the labels of those that are run
    alone, and rows that wait for other selectors are left out; else all of them come before the
    other trials."""
    paper = config.paper
    if paper is None:
        return Rows()
    waiting = set() if chosen is None else space.waiting()
    settled = [
        _settled(config, space, row)
        for row in paper.rows
        if not waiting & selectors_of(space, row.where, paper.where)
    ]
    running = [row for row in settled if chosen is None or row.label in chosen]
    seeds = paper.seeds if chosen is None else max(1, paper.seeds)
    return Rows(settled, _trainings(config, running, seeds), alone=chosen is not None)


def _settled(config: SearchConfig, space: Space, row: PaperRow) -> SettledRow:
    paper = config.paper
    assert paper is not None
    where = whole_setting(paper, row)
    if row.reason:
        return SettledRow(row.label, RowNote(where, problem=row.reason))
    try:
        found = points(space, row.where, paper.where, config.search.seed)
    except SettingProblem as problem:
        return SettledRow(row.label, RowNote(where, problem=problem.text))
    drawn, specs = tuple(d for d, _ in found), tuple(spec for _, spec in found)
    hashes = tuple(point_of(spec.canonical(), config.name) for spec in specs)
    broken = sorted({k for spec in specs for k in violations(config, space.costs(spec))})
    forbidden = f"the limits forbid it: {', '.join(broken)}" if broken else ""
    return SettledRow(row.label, RowNote(where, hashes, forbidden), drawn, specs)


def _trainings(config: SearchConfig, rows: Sequence[SettledRow], seeds: int) -> list[Training]:
    """All rows with the seed of the search, then all with the next one: the whole table is there
    after a part of the time. A row of several draws takes them in turn."""
    found: dict[str, Training] = {}
    for nth in range(seeds):
        seed = config.search.seed + nth
        for row in rows:
            if row.note.problem or not row.specs:
                continue
            draw = nth % len(row.specs)
            spec = row.specs[draw].model_copy(update={"seed": seed}).canonical()
            id_ = spec.fingerprint(config.name)
            found.setdefault(id_, Training(id_, row.drawn[draw], seed, spec.task.epochs))
    return list(found.values())


def _plain(label: str) -> str:
    """A label without spaces and case: `HAWQ-V2 40%` is the row `HAWQ-V2 40 %`."""
    return "".join(label.split()).lower()


def chosen_rows(config: SearchConfig, patterns: Sequence[str]) -> list[str]:
    """The labels of the rows that these labels or patterns name; a UserError for one that names
    none, or a row that says it cannot be run."""
    if config.paper is None:
        raise UserError(
            f"search '{config.name}' carries no rows of a paper",
            "a `paper:` section in its YAML would (docs/yaml.md)",
        )
    labels = [row.label for row in config.paper.rows]
    reasons = {row.label: row.reason for row in config.paper.rows if row.reason}
    chosen: list[str] = []
    for pattern in patterns:
        wanted = _plain(pattern)
        # A label may have brackets or a star of its own.
        found = [label for label in labels if _plain(label) == wanted]
        found = found or [la for la in labels if fnmatch.fnmatchcase(_plain(la), wanted)]
        if not found:
            raise UserError(f"--rows: no row '{pattern}', {did_you_mean(pattern, labels)}")
        runnable = [label for label in found if label not in reasons]
        if not runnable:
            raise UserError(f"--rows: '{found[0]}' cannot be run here: {reasons[found[0]]}")
        chosen += [label for label in runnable if label not in chosen]
    return chosen
