"""A search beside the rows of the paper it follows: for each printed row the trials that ran
its setting, with data and epochs of both. How it is printed is in `bitfront.terminal`; what counts
as agreement is in `agreement`."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.paper import PaperRow, PaperSpec
from bitfront.search.ledger.entry import PLAN_SETTINGS, Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.recipes.finals import FinalTraining, final_trainings
from bitfront.search.results.agreement import (
    Measured,
    Order,
    Pairs,
    Printed,
    mark,
    measured,
    orders,
    paired,
    standard_error,
)
from bitfront.search.results.labels import OWN_SHARE
from bitfront.search.results.results import Results
from bitfront.search.session.rows import note_of_row, whole_setting
from bitfront.spaces.setting import EACH, PLAN_SEED, value_of
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.metrics import Metric
from bitfront.trainables.parameters import Value

# How the names of metrics on the test set begin.
TESTED = "test_"


@dataclass(frozen=True)
class Answer:
    """The trials of a row, and what is missing."""

    row: PaperRow
    entries: Sequence[Entry] = ()
    """complete ones, by seed"""
    missing: str = ""
    """what there is not yet, or why there is nothing"""
    reason: str = ""
    """why the row is not run, where the YAML says so"""


@dataclass
class PaperComparison:
    """A search and the rows of a paper that its YAML has."""

    ours: Results

    def __post_init__(self) -> None:
        if self.ours.config.paper is None:
            raise UserError(
                f"search '{self.ours.config.name}' carries no rows of a paper",
                "a `paper:` section in its YAML would (docs/yaml.md)",
            )

    @property
    def paper(self) -> PaperSpec:
        """The `paper` section of the YAML."""
        paper = self.ours.config.paper
        assert paper is not None
        return paper

    @property
    def metric(self) -> Metric:
        """The metric in which rows are compared."""
        return self.ours.config.kind.metric(self.paper.metric)

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics of which numbers are printed, the one of the table first."""
        further = [name for row in self.paper.rows for name in row.values]
        tested = self._tested
        if tested is not None and any(self._of(each, tested) for each in self.answers):
            further.append(tested)
        return list(dict.fromkeys([self.paper.metric, *further]))

    @property
    def _tested(self) -> str | None:
        """The metric on the test set that `value` is of; None where it is of another part."""
        known = {metric.name for metric in self.ours.config.kind.metrics}
        of_test = self.paper.part == "test set" and self.paper.metric in known
        return f"{TESTED}{self.metric.bare}" if of_test else None

    # --- which trials answer ----------------------------------------------------------------------

    @cached_property
    def answers(self) -> list[Answer]:
        """The trials of every row, in the order of the table."""
        return [self._answer(row) for row in self.paper.rows]

    def _answer(self, row: PaperRow) -> Answer:
        if row.reason:
            return Answer(row, reason=row.reason)
        note = note_of_row(self.ours.rows, self.paper, row)
        if note is not None and note.problem:
            return Answer(row, missing=note.problem)
        if note is not None:
            entries = [e for e in self.ours.entries if self._is_of(e, note.points)]
        else:
            where = whole_setting(self.paper, row)
            matching = [e for e in self.ours.entries if self._has(e, where)]
            open_keys = self._open(matching, where)
            if open_keys:
                return Answer(row, missing=f"leaves {', '.join(open_keys)} open")
            entries = matching
        complete = [
            e for e in entries if e.state == TrialState.COMPLETE and self.paper.metric in e.metrics
        ]
        by_seed = sorted(complete, key=lambda e: (e.spec.seed, e.number))
        return Answer(row, by_seed, self._missing(entries, complete))

    def _is_of(self, entry: Entry, points: Sequence[str]) -> bool:
        """Whether a trial is of the row with these points. Of several draws, the n-th seed counts
        with the n-th draw alone: what the sampler tries later would count one draw twice."""
        if len(set(points)) <= 1 or not self.paper.seeds:
            return entry.point in points
        nth = entry.spec.seed - self.ours.config.search.seed
        return 0 <= nth < self.paper.seeds and entry.point == points[nth % len(points)]

    def _missing(self, entries: Sequence[Entry], complete: Sequence[Entry]) -> str:
        """What a row still waits for: seeds that did not run, and trials that failed."""
        first, wanted = self.ours.config.search.seed, self.paper.seeds
        there = {e.spec.seed for e in complete}
        seeds = [s for s in range(first, first + max(1, wanted)) if s not in there]
        if not seeds or (wanted == 0 and complete):
            return ""
        # A trial that its driver left behind did not run: it begins again with the next one.
        gone = TrialState.RUNNING if self.ours.state != "running" else None
        ended = {e.spec.seed: e for e in entries if e.spec.seed in seeds and e.state != gone}
        told = [_ending(ended[s], len(seeds) > 1 or bool(complete)) for s in seeds if s in ended]
        left = [s for s in seeds if s not in ended]
        if left and not complete and not told:
            return f"0 of {wanted} seeds" if wanted else "no trial has its setting"
        if left:
            word = "seed" if len(left) == 1 else "seeds"
            told.append(f"{word} {', '.join(map(str, left))} missing")
        return "; ".join(told)

    # --- ledgers without notes of rows -----------------------------------------------------------

    def _has(self, entry: Entry, where: Mapping[str, Value]) -> bool:
        """Whether a trial has the values that a setting names, as far as the trial draws them."""
        return all(self._same(entry, key, value) for key, value in where.items())

    def _same(self, entry: Entry, key: str, value: Value) -> bool:
        if key == PLAN_SEED and value == EACH:
            return True
        found = self.value(entry, key)
        if key == "plan" and len(str(value)) == 1:
            return set(str(found)) == {value}
        return bool(found == value)

    def _open(self, entries: Iterable[Entry], where: Mapping[str, Value]) -> list[str]:
        """The keys that trials with these values draw and the setting does not name."""
        plan = self.ours.config.space.get("plan")
        drawn = {key for entry in entries for key in entry.drawn} - set(where)
        named = any(key == "plan" or key.startswith("plan.") for key in where)
        if named and not any(key in where for key in PLAN_SETTINGS):
            drawn -= set(PLAN_SETTINGS)  # the letters say it all
        free = isinstance(plan, Mapping) and "selector" not in plan and "fixed" not in plan
        if free and not named and where.get("method") != "fp":
            drawn.add("plan")
        return sorted(drawn)

    def value(self, entry: Entry, key: str) -> Any:
        """The value of a key in a trial. A key with one value is not sampled, so it is looked up in
        the space. With the plan `F` every trial is stored with the method `fp`; the sampled method
        still says how the trial was trained against attacks."""
        space = self.ours.config.space
        plan = space.get("plan")
        if key == "method" and plan == "F":
            return entry.drawn.get("method", _only(space.get("method")))
        if key not in ("method", "plan", "plan.all") and key in entry.drawn:
            return entry.drawn[key]
        found = value_of(entry.spec, key)
        part, _, name = key.partition(".")
        if found is None and part == "plan" and isinstance(plan, dict):
            found = _only(plan.get(name))
        return found

    # --- the table -------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """Every row of the paper, our trials of its setting, and what is said of each number."""
        ordered = {
            name: orders({k: (p.value, m.value) for k, (p, m) in self._pairs(name).items()})
            for name in self.metrics
        }
        return [self._row(answer, ordered) for answer in self.answers]

    def _pairs(self, metric: str) -> dict[str, tuple[Printed, Measured]]:
        """(printed, ours) of every answered row, by label."""
        found = {}
        for answer in self.answers:
            theirs, ours = self._printed(answer.row, metric), self._of(answer, metric)
            if theirs is not None and ours is not None:
                found[answer.row.label] = theirs, ours
        return found

    def _of(self, answer: Answer, metric: str) -> Measured | None:
        """Our number: over the trials of a row or, on the test set, over the final trainings of its
        network with the epochs of the trials and the same epoch kept."""
        if not metric.startswith(TESTED):
            values = [e.metrics[metric] for e in answer.entries if metric in e.metrics]
            return measured(values) if values else None
        by_seed = {}
        for entry in answer.entries:
            task = entry.spec.task
            for final in self._finals.get(entry.id, ()):
                alike = (final.epochs, final.keep) == (task.epochs, task.keep)
                if alike and final.rest == "float32" and metric in final.metrics:
                    by_seed[final.seed] = final.metrics[metric]
        return measured(list(by_seed.values())) if by_seed else None

    @cached_property
    def _finals(self) -> dict[str, list[FinalTraining]]:
        """The final trainings of recipes of this search, by the trial they were exported from."""
        found: dict[str, list[FinalTraining]] = {}
        for final in final_trainings(self.ours.folder, skip_damaged=True):
            found.setdefault(final.trial, []).append(final)
        return found

    def pairs(self, metric: str) -> Pairs:
        """Whether every two answered rows come as printed."""
        return paired(self._pairs(metric))

    def _printed(self, row: PaperRow, metric: str) -> Printed | None:
        own = metric == self.paper.metric or (metric == self._tested and metric not in row.values)
        value = row.value if own else row.values.get(metric)
        spread = row.spread if own else row.spreads.get(metric)
        return None if value is None else Printed(value, spread, self.paper.runs)

    def _row(self, answer: Answer, ordered: dict[str, dict[str, Order | None]]) -> dict[str, Any]:
        row, entries = answer.row, answer.entries
        unlike = self.unlike(row, entries)
        numbers = []
        for metric in self.metrics:
            theirs, ours = self._printed(row, metric), self._of(answer, metric)
            if theirs is not None or (metric == self.paper.metric):
                order = ordered[metric].get(row.label)
                numbers.append(_number(metric, theirs, ours, order, not unlike))
        first = entries[0] if entries else None
        return {
            "paper": row.model_dump(mode="json"),
            "ours": None if first is None else _ours(first, entries, numbers[0]),
            "difference": numbers[0]["difference"],
            "numbers": numbers,
            "not_comparable": unlike,
            "missing": answer.missing,
            "reason": answer.reason,
        }

    def unlike(self, row: PaperRow, entries: Sequence[Entry]) -> list[str]:
        """What makes our number of a row not comparable with the printed one, also before there is
        one."""
        if row.reason:
            return []
        paper, task = self.paper, self.ours.config.task
        found = []
        if _dataset(paper.dataset) != _dataset(task.dataset):
            found.append(f"{task.dataset}, not {paper.dataset}")
        size = paper.examples or DATASETS.get(task.dataset).train_size
        if task.subset is not None and (not size or task.subset < size):
            found.append(f"{task.subset:,} examples" + (f" of {size:,}" if size else ""))
        theirs = row.epochs or paper.epochs
        drawn = whole_setting(paper, row).get("epochs", task.epochs)
        epochs = entries[0].spec.task.epochs if entries else int(drawn)
        if theirs is not None and epochs < theirs:
            found.append(f"{epochs} of {theirs} epochs")
        return [*found, paper.differs] if paper.differs else found

    def as_json(self) -> dict[str, Any]:
        """The comparison as `bitfront compare NAME --paper --json` prints it."""
        config, paper = self.ours.config, self.paper
        rows = self.rows()
        return {
            "search": config.name,
            "paper": {
                **paper.model_dump(mode="json", exclude={"rows"}),
                "citation": paper.citation,
                "link": paper.link or None,
            },
            "ours": {
                "dataset": config.task.dataset,
                "train_examples": train_examples(config),
                "model": config.task.model.model_dump(),
                "epochs": config.task.epochs,
                "metric": paper.metric,
                "trials": self.ours.counts()[TrialState.COMPLETE],
            },
            "answered": sum(row["ours"] is not None for row in rows),
            "rows": rows,
        }


def _ending(entry: Entry, named: bool) -> str:
    """What became of a trial that is not complete."""
    seed = f"seed {entry.spec.seed} " if named else ""
    if entry.state == TrialState.FAILED:
        return f"{seed}failed: {entry.why}"
    if entry.state == TrialState.COMPLETE:
        return f"{seed}has not measured it"
    return f"{seed}{entry.state}"


def _number(
    metric: str,
    theirs: Printed | None,
    ours: Measured | None,
    order: Order | None,
    comparable: bool,
) -> dict[str, Any]:
    """One printed number beside ours."""
    told: dict[str, Any] = dict.fromkeys(("difference", "standard_error", "order", "mark"))
    if theirs is not None and ours is not None:
        told = {
            "difference": ours.value - theirs.value,
            "standard_error": standard_error(ours, theirs),
            "order": order,
            "mark": mark(ours, theirs, order, comparable),
        }
    return {
        "metric": metric,
        "paper": None if theirs is None else theirs.value,
        "paper_spread": None if theirs is None else theirs.spread,
        "value": None if ours is None else ours.value,
        "spread": None if ours is None else ours.spread,
        "seeds": 0 if ours is None else ours.seeds,
        **told,
    }


def _ours(first: Entry, entries: Sequence[Entry], number: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "trials": [e.id for e in entries],
        "seeds": [e.spec.seed for e in entries],
        "method": first.spec.method,
        "plan": first.spec.plan,
        "value": number["value"],
        "spread": number["spread"],
        # Draws of a random plan differ in it.
        **{key: _mean(e.costs[key] for e in entries) for key in ("flops_pct", OWN_SHARE)},
        "epochs": first.spec.task.epochs,
        "cpu_seconds": cpu_seconds(entries),
    }


def cpu_seconds(entries: Iterable[Entry]) -> float | None:
    """The processor's time of trials, all together; None where none was measured."""
    found = [t for e in entries if (t := e.cpu_seconds) is not None]
    return sum(found) if found else None


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _dataset(name: str) -> str:
    """The name of a dataset in one spelling, also of one we do not have."""
    with contextlib.suppress(UserError):
        name = DATASETS.get(name).name
    return name.lower().replace("-", "").replace(" ", "")


def _only(given: Any) -> Any:
    """The only value of a key of the space; None where there are several."""
    if isinstance(given, list):
        return given[0] if len(given) == 1 else None
    return None if isinstance(given, dict) else given


def train_examples(config: SearchConfig) -> int | None:
    """The number of examples a trial trains on, without those for validation; None where the
    dataset does not declare its size."""
    task = config.task
    size = DATASETS.get(task.dataset).train_size
    if not size:
        return None
    size = min(size, task.subset or size)
    return size - round(size * task.val_fraction)
