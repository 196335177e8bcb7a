"""A rehearsal: the whole search with made-up accuracies, through the real ledger, sampler, limits,
early stopping, repeats and rows of a paper. Seconds instead of days, and nothing is trained."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bitfront.search.config.schema import PaperRow, SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.paper import SAME_COST, PaperComparison
from bitfront.search.results.results import Results
from bitfront.search.session.early_stopping import rung_epoch
from bitfront.search.session.selection import needed, start_points
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import MemoryFolder, play
from bitfront.spaces.space import Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.selectors import Selection, SelectionSpec

# Trials at once, unless the search allows fewer: not this machine's number, so that a rehearsal
# tells everybody the same.
WORKERS = 4
# A made-up learning curve has so many points and those where trials are compared.
CURVE_POINTS = 12
# How much of the way from chance to perfect, in full precision and for nothing at all.
BEST, WORST = 0.85, 0.25
POINT_SPREAD, SEED_SPREAD = 0.01, 0.005
MEASURED_AT_END = "val_robust_autoattack"


@dataclass(frozen=True)
class Unanswered:
    """A row of a paper that no trial would answer."""

    label: str
    why: str


@dataclass(frozen=True)
class Rehearsal:
    """What would happen to the trials of a search."""

    trials: int
    """that would run"""
    asked: int
    exhausted: bool
    """whether nothing new was left before the budget was spent"""
    distinct: int | None
    """different trials there are within the limits; None: more than anybody would list"""
    complete: int
    stopped: int
    failed: int
    repeats: int
    """trials that repeat a point with another seed"""
    refused_by_limits: int
    """points that were proposed and are no trials"""
    known: int
    """points that were proposed again"""
    front: int
    made_up_selectors: list[str] = field(default_factory=list)
    rows: int = 0
    """of a paper"""
    unanswered: list[Unanswered] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        labels = [row.label for row in self.unanswered]
        reasons = [asdict(row) for row in self.unanswered]
        return {**asdict(self), "unanswered": labels, "unanswered_rows": reasons}


def rehearse(
    config: SearchConfig,
    space: Space,
    failures: float = 0.0,
    ended: Callable[[Session], None] = lambda session: None,
) -> Rehearsal:
    """Play the search to its end; `failures` is the share of trials that fail, `ended` is called
    after each. The same for the same configuration, and nothing is left on disk."""
    # Checkpoints of trials that are none must not be looked for where those of others are.
    config = config.model_copy(update={"storage": None})
    seed = config.search.seed
    made_up = sorted({spec.selector for spec in needed(config, space)})
    space = space.settled(made_up_selection, seed)
    workers = min(config.resources.concurrent or WORKERS, WORKERS)
    with tempfile.TemporaryDirectory() as root:
        folder = MemoryFolder(Path(root) / config.name)
        first = start_points(space)
        session = Session(config, space, folder, tracker=None, first=first)
        play(session, Curves(config, space, failures).rows, workers, ended=ended)
        results = Results.from_entries(
            folder, config, list(session.ledger.entries.values()), session.ledger.reference
        )
        return _report(session, results, made_up)


def _report(session: Session, results: Results, made_up: list[str]) -> Rehearsal:
    ledger, config = session.ledger, session.config
    rows = config.paper.rows if config.paper is not None else []
    return Rehearsal(
        trials=len(ledger.entries),
        asked=config.search.trials,
        exhausted=ledger.exhausted,
        distinct=None if ledger.listed is None else len(ledger.listed),
        complete=ledger.count("complete"),
        stopped=ledger.count("pruned"),
        failed=ledger.count("failed"),
        repeats=len(ledger.entries) - ledger.explored,
        refused_by_limits=ledger.refused["limits"],
        known=ledger.refused["known"],
        front=len(results.front),
        made_up_selectors=made_up,
        rows=len(rows),
        unanswered=_unanswered(rows, results, ledger, made_up),
    )


# --- what is made up ------------------------------------------------------------------------------


def made_up_selection(spec: SelectionSpec) -> Selection:
    """An order of layers where a selector would train a network and look at it: any, and the same
    for the same selector."""
    layers = [layer.name for layer in task_cost_table(spec.task).plan_layers]
    order = list(range(len(layers)))
    random.Random(spec.fingerprint()).shuffle(order)
    return Selection(spec=spec, layers=layers, order=order, score="made up")


@dataclass
class Curves:
    """Made-up learning curves: dearer networks are better, points and seeds differ by chance."""

    config: SearchConfig
    space: Space
    failures: float = 0.0

    def __post_init__(self) -> None:
        kind, info = self.config.kind, DATASETS.get(self.config.task.dataset)
        attacks = self.config.task.attack.evaluate
        self._ranges = {
            metric.name: (kind.chance(metric.name, info), metric.ideal)
            for metric in kind.metrics
            if not metric.name.startswith("val_robust_")
            or metric.name.removeprefix("val_robust_") in attacks
        }
        self._full = max(costs["flops"] for costs in self.space.full_costs()) or 1.0

    def rows(self, entry: Entry) -> list[dict[str, Any]]:
        seed = self.config.search.seed
        of_point = random.Random(f"{seed}/{entry.point}")
        of_trial = random.Random(f"{seed}/{entry.id}/{entry.spec.seed}")
        kept = min(1.0, entry.costs["flops"] / self._full)
        share = WORST + (BEST - WORST) * kept**0.4 + of_point.gauss(0, POINT_SPREAD)
        epochs = self._epochs(entry.spec.task.epochs)
        rows = [self._row(epoch, epochs[-1], share, of_trial) for epoch in epochs]
        if of_trial.random() < self.failures:
            failed = {"epoch": epochs[0], "failure": "error", "message": "a made-up failure"}
            return [failed]
        return rows

    def _epochs(self, epochs: int) -> list[int]:
        """Those a trial reports: the last, some before, and where it is compared with others."""
        stopping = self.config.search.early_stopping
        rungs = {rung_epoch(share, epochs) for share in stopping.rungs} if stopping else set()
        some = {math.ceil(epochs * i / CURVE_POINTS) for i in range(1, CURVE_POINTS + 1)}
        return sorted({*rungs, *some})

    def _row(self, epoch: int, last: int, share: float, rng: random.Random) -> dict[str, Any]:
        learned = share * (1 - math.exp(-4 * epoch / last)) / (1 - math.exp(-4))
        learned = min(max(learned + rng.gauss(0, SEED_SPREAD), 0.01), 0.99)
        row: dict[str, Any] = {"epoch": epoch}
        for name, (chance, ideal) in self._ranges.items():
            if name != MEASURED_AT_END or epoch == last:
                row[name] = chance + learned * (ideal - chance)
        return row


# --- rows of a paper ------------------------------------------------------------------------------


def _unanswered(
    rows: Sequence[PaperRow], results: Results, ledger: Ledger, made_up: Sequence[str]
) -> list[Unanswered]:
    """Rows without a trial of ours, or whose nearest one is too far away to be compared."""
    if not rows:
        return []
    comparison = PaperComparison(results)
    found = []
    for row in rows:
        entry = comparison.answer(row)
        if entry is None:
            why = _why_none(row, comparison, ledger)
        elif row.flops_pct is not None and abs(_cost(entry) - row.flops_pct) > SAME_COST:
            nearest = f"the nearest trial has {_cost(entry):.1f} % of the flops"
            why = f"{nearest}, the row {row.flops_pct:g} %"
        else:
            continue
        if row.where.get("plan.selector") in made_up:
            why += "; but its order of layers is made up"
        found.append(Unanswered(row.label, why))
    return found


def _cost(entry: Entry) -> float:
    return entry.costs["flops_pct"]


def _why_none(row: PaperRow, comparison: PaperComparison, ledger: Ledger) -> str:
    """Why no trial answers a row, as far as a listing of the space tells."""

    def told(keys: Iterable[str], entry: Entry | None = None) -> str:
        pairs = [(k, row.where[k] if entry is None else comparison.value(entry, k)) for k in keys]
        return ", ".join(f"{key} {value}" for key, value in pairs)

    def unlike(entry: Entry) -> list[str]:
        return [k for k, value in row.where.items() if comparison.value(entry, k) != value]

    ran = [e for e in ledger.entries.values() if e.state == "complete"]
    if not ran:
        return "no trial is complete"
    if ledger.every_entry is None or ledger.listed is None:
        never = set(row.where).intersection(*(unlike(e) for e in ran))
        wanted = [k for k in row.where if k in never] or row.where
        return f"none of the {len(ran)} complete trials has {told(wanted)}"
    answering = {entry.id for entry, _ in ledger.every_entry if not unlike(entry)}
    if not answering:
        nowhere = set(row.where).intersection(*(unlike(e) for e, _ in ledger.every_entry))
        wanted = [k for k in row.where if k in nowhere] or row.where
        return f"no point of the space has {told(wanted)}"
    if not answering & set(ledger.listed):
        return "the limits forbid it"
    twin = next((e for e in ran if e.id in answering), None)
    if twin is not None:
        return f"the same network is trained once, for {told(unlike(twin), twin)}"
    ended = next((e for e in ledger.entries.values() if e.id in answering), None)
    if ended is not None:
        return f"its trial is {ended.state}"
    return f"not among the {len(ran)} complete trials: {len(ledger.listed)} different ones exist"
