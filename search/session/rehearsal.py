"""A rehearsal: the whole search with made-up accuracies, through the real ledger, sampler, limits,
early stopping, repeats and rows of a paper. It takes seconds and trains nothing. Its text is made
in `bitfront.terminal`."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bitfront.search.config.known import measured_at_end
from bitfront.search.config.schema import SearchConfig, SearchSpec
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.paper import TESTED, PaperComparison
from bitfront.search.results.results import Results
from bitfront.search.session.early_stopping import rung_epoch
from bitfront.search.session.rows import settle_rows
from bitfront.search.session.selection import needed, start_points
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import MemoryFolder, play
from bitfront.spaces.space import Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.selectors import Selection, SelectionSpec
from bitfront.trainables.task import TrialSpec

# Trials that run at once, unless the search allows fewer. The number does not depend on this
# machine, so that a rehearsal has the same outcome everywhere.
WORKERS = 4
# Points of a made-up learning curve, besides the rungs of early stopping.
CURVE_POINTS = 12
# The made-up accuracy as a share of the way from chance to perfect: of a network in full precision,
# and of one without any cost.
BEST, WORST = 0.85, 0.25
POINT_SPREAD, SEED_SPREAD = 0.01, 0.005
# How far a look is below the end.
LOOK_BIAS = 0.02


@dataclass(frozen=True)
class Unanswered:
    """A row of a paper that no trial would answer."""

    label: str
    why: str
    stated: bool = False
    """whether the YAML itself says why"""


@dataclass(frozen=True)
class Rehearsal:
    """What would happen to the trials of a search."""

    trials: int
    """how many would run"""
    asked: int
    """the budget of trials"""
    exhausted: bool
    """whether nothing new was left before the budget was spent"""
    distinct: int | None
    """how many different trials satisfy the limits; None where the space is too large to list"""
    complete: int
    stopped: int
    paused: int
    """trials that rest at a rung, or after a look, when the search is over"""
    failed: int
    repeats: int
    """trials that repeat a point with another seed"""
    refused_by_limits: int
    """how many proposed points broke a limit"""
    known: int
    """how many proposed points were trials already"""
    front: int
    made_up_selectors: list[str] = field(default_factory=list)
    rows: int = 0
    """how many rows of a paper the search has"""
    row_trials: int = 0
    """how many of the trials are those of rows, which run first"""
    row_epochs: int = 0
    """how many epochs those train in all"""
    unanswered: list[Unanswered] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The rehearsal as `bitfront preview --rehearse --json` prints it."""
        labels = [row.label for row in self.unanswered]
        reasons = [asdict(row) for row in self.unanswered]
        return {**asdict(self), "unanswered": labels, "unanswered_rows": reasons}


def rehearse(
    config: SearchConfig,
    space: Space,
    failures: float = 0.0,
    ended: Callable[[Session], None] = lambda _session: None,
    rows: Sequence[str] | None = None,
) -> Rehearsal:
    """The outcome of the search with made-up accuracies. `failures` is the share of trials that
    fail; `ended` is called after each trial; `rows` are labels of rows that are run alone. The same
    configuration has the same outcome, and nothing is left on disk."""
    config = counted(config)
    # Without the shared storage: there are no checkpoints, and none must be deleted there.
    config = config.model_copy(update={"storage": None})
    seed = config.search.seed
    made_up = sorted({spec.selector for spec in needed(config, space)})
    space = space.settled(made_up_selection, seed)
    workers = min(config.resources.concurrent or WORKERS, WORKERS)
    with tempfile.TemporaryDirectory() as root:
        folder = MemoryFolder(Path(root) / config.name)
        first = start_points(space)
        settled = settle_rows(config, space, rows)
        session = Session(config, space, folder, tracker=None, first=first, rows=settled)
        play(session, Curves(config, space, failures).rows, workers, ended=ended)
        results = Results.from_entries(
            folder, config, list(session.ledger.entries.values()), session.ledger.reference
        )
        results.rows = {row.note.key: row.note for row in settled.settled}
        return _report(session, results, made_up, rows)


def counted(config: SearchConfig) -> SearchConfig:
    """The search with a number of trials alone: of hours and of gains made-up accuracies tell
    nothing."""
    trials = SearchSpec().trials if config.search.budget is None else config.search.trials
    alone = {"trials": trials, "hours": None, "until": None}
    return config.model_copy(update={"search": config.search.model_copy(update=alone)})


def _report(
    session: Session, results: Results, made_up: list[str], chosen: Sequence[str] | None
) -> Rehearsal:
    ledger = session.ledger
    of_rows = [e for e in ledger.entries.values() if e.id in session.rows.ids]
    return Rehearsal(
        trials=len(ledger.entries),
        asked=session.budget,
        exhausted=ledger.exhausted,
        distinct=None if ledger.proposals.listed is None else len(ledger.proposals.listed),
        complete=ledger.count(TrialState.COMPLETE),
        stopped=ledger.count(TrialState.STOPPED),
        paused=ledger.count(TrialState.PAUSED),
        failed=ledger.count(TrialState.FAILED),
        repeats=len(ledger.entries) - ledger.explored,
        refused_by_limits=ledger.proposals.refused["limits"],
        known=ledger.proposals.refused["known"],
        front=len(results.front),
        made_up_selectors=made_up,
        rows=len(session.rows.settled if chosen is None else chosen),
        row_trials=len(of_rows),
        row_epochs=sum(e.spec.task.epochs for e in of_rows),
        unanswered=[
            row for row in _unanswered(results, made_up) if chosen is None or row.label in chosen
        ],
    )


# --- made-up results ------------------------------------------------------------------------------


def made_up_selection(spec: SelectionSpec) -> Selection:
    """A random order of layers in place of one that a selector would get by training; the same for
    the same selector."""
    layers = [layer.name for layer in task_cost_table(spec.task).plan_layers]
    order = list(range(len(layers)))
    random.Random(spec.fingerprint()).shuffle(order)
    return Selection(spec=spec, layers=layers, order=order, score="made up")


@dataclass
class Curves:
    """Made-up learning curves: dearer networks are better; points and seeds differ at random."""

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
        """The results of a trial, a row per reported epoch."""
        seed = self.config.search.seed
        of_point = random.Random(f"{seed}/{entry.point}")
        of_trial = random.Random(f"{seed}/{entry.id}/{entry.spec.seed}")
        kept = min(1.0, entry.costs["flops"] / self._full)
        share = WORST + (BEST - WORST) * kept**0.4 + of_point.gauss(0, POINT_SPREAD)
        epochs = self._epochs(entry.spec.task.epochs)
        if entry.looking and entry.look is not None:
            epochs = list(range(1, entry.look.epochs + 1))
            share -= LOOK_BIAS
        rows = [self._row(epoch, epochs[-1], share, of_trial) for epoch in epochs]
        rows[-1] |= self._reported(entry.spec, rows[-1])
        if of_trial.random() < self.failures:
            failed = {"epoch": epochs[0], "failure": "error", "message": "a made-up failure"}
            return [failed]
        return rows

    def _reported(self, spec: TrialSpec, last: Mapping[str, Any]) -> dict[str, float]:
        """The numbers besides metrics that a trial of this spec measures at its end; they do not
        differ from its quality."""
        quality = self.config.kind.quality
        found = {}
        if spec.task.measure_train != "never":
            found[f"train_{quality.bare}"] = last[quality.name]
        if spec.params.get("mean_samples"):
            found[f"{quality.name}_mean"] = last[quality.name]
            if spec.task.measure_train != "never":
                found[f"train_{quality.bare}_mean"] = last[quality.name]
        return found

    def _epochs(self, epochs: int) -> list[int]:
        """The epochs that a trial reports: the last, some before it, and the rungs."""
        rungs = {rung_epoch(share, epochs) for share in self.config.search.rungs}
        some = {math.ceil(epochs * i / CURVE_POINTS) for i in range(1, CURVE_POINTS + 1)}
        return sorted({*rungs, *some})

    def _row(self, epoch: int, last: int, share: float, rng: random.Random) -> dict[str, Any]:
        learned = share * (1 - math.exp(-4 * epoch / last)) / (1 - math.exp(-4))
        learned = min(max(learned + rng.gauss(0, SEED_SPREAD), 0.01), 0.99)
        row: dict[str, Any] = {"epoch": epoch}
        for name, (chance, ideal) in self._ranges.items():
            if name not in measured_at_end() or epoch == last:
                row[name] = chance + learned * (ideal - chance)
        return row


# --- rows of a paper ------------------------------------------------------------------------------


def _unanswered(results: Results, made_up: Sequence[str]) -> list[Unanswered]:
    """The rows that are not answered with all their seeds, or lack a printed metric, with the
    reason. Numbers on the test set are of final trainings, and not missing here."""
    if results.config.paper is None:
        return []
    comparison = PaperComparison(results)
    found = []
    for answer, row in zip(comparison.answers, comparison.rows(), strict=True):
        lacking = [n["metric"] for n in row["numbers"] if answer.entries and not n["seeds"]]
        unmeasured = [name for name in lacking if not name.startswith(TESTED)]
        why = answer.reason or answer.missing
        if unmeasured and not why:
            why = f"{', '.join(unmeasured)} is not measured"
        if not why:
            continue
        if answer.row.where.get("plan.selector") in made_up and not answer.reason:
            why += "; but its order of layers is made up"
        found.append(Unanswered(answer.row.label, why, bool(answer.reason)))
    return found
