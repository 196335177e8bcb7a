"""Inheriting: a new point is looked at with a short training from the weights of the finished trial
that is nearest, and trained from scratch where its look promises enough. A look is biased; what it
is worth is modelled in `samplers/surrogate/past.py`. Every decision is a function of the ledger."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.inheriting import InheritSpec, why_not
from bitfront.search.ledger.entry import PLAN_SETTINGS, Entry, Look
from bitfront.search.ledger.folder import Checkpoints
from bitfront.search.ledger.states import TrialState
from bitfront.search.session.early_stopping import share_number
from bitfront.trainables.metrics import Metric
from bitfront.trainables.task import TrialSpec

BYTES = 4  # of a number in the weights that are kept


class Gains(Protocol):
    """The hypervolume that trials are expected to add, by the model of the sampler."""

    @property
    def new(self) -> float: ...

    @property
    def paused(self) -> Mapping[str, float]: ...


class Trials(Protocol):
    """The part of a ledger that is needed here."""

    entries: dict[str, Entry]
    exhausted: bool
    inheriting: Callable[[Entry, Any], Look | None]
    promoted: Callable[[], Entry | None]

    @property
    def begun(self) -> int: ...

    def hopes(self) -> Gains | None: ...


class Inheriting:
    """Decides who inherits from whom, whose weights are kept, and which points that were looked at
    are trained from scratch."""

    def __init__(self, config: SearchConfig, ledger: Trials, whole: Collection[str] = ()) -> None:
        """The trials `whole`, by id, are trained from scratch at once."""
        assert config.search.inherit is not None
        self.spec: InheritSpec = config.search.inherit
        self._quality = config.quality
        self._trials = config.search.trials
        self._seed = config.search.seed
        self._ledger = ledger
        self._whole = whole
        self._kept = {entry.id for entry in self.bequeathing()}
        ledger.inheriting, ledger.promoted = self.look, self.next

    def look(self, entry: Entry, domains: Mapping[str, Any]) -> Look | None:
        """The look that a new trial begins with: from the weights of the nearest one, of equally
        near ones the best. None where it is trained from scratch at once. `domains` are Optuna's
        distributions of its parameters."""
        spared = entry.spec.seed != self._seed or entry.id in self._whole
        if spared or entry.spec.task.epochs < 2 or why_not(entry.spec.method) is not None:
            return None
        sign = -1.0 if self._quality.maximize else 1.0
        near = [
            (distance(entry, e, domains), sign * e.metrics[self._quality.name], e.number, e.id)
            for e in self.bequeathing()
            if network(e.spec) == network(entry.spec)
        ]
        if len(near) < self.spec.least:
            return None
        apart, _, _, parent = min(near)
        return Look(parent, round(apart, 6), self.spec.epochs_of(entry.spec.task.epochs))

    def bequeathing(self) -> list[Entry]:
        """The finished trials whose weights are kept: the latest, as far as number and size
        allow."""
        found: list[Entry] = []
        size = 0.0
        for entry in reversed(self._ledger.entries.values()):
            if entry.state != TrialState.COMPLETE or why_not(entry.spec.method) is not None:
                continue
            size += BYTES * entry.costs.get("parameters", 0.0)
            if len(found) == self.spec.weights or (found and size > 1e9 * self.spec.gb):
                break
            found.append(entry)
        return found

    def next(self) -> Entry | None:
        """The point that was looked at and is trained from scratch now: the first ones, those of
        the control share, then the one of greatest expected gain alpha_i in hypervolume, where

            alpha_i / T >= max_x alpha(x) / L

        over new points x, with T the epochs of a training and L those of a look: so many looks
        come before a training, since what is looked at later may be better still. When no new
        point begins any more the right side is that of a point trained without a look to choose
        it, max_x alpha(x) / (T + L)."""
        entries = self._ledger.entries.values()
        resting = [e for e in entries if e.state == TrialState.PAUSED and e.look is not None]
        if not resting:
            return None
        begun = sum(e.look is not None and bool(e.look.history) for e in entries) - len(resting)
        first = [e for e in resting if self.is_control(e)] or resting
        if begun < self.spec.least or self.is_control(first[0]):
            return first[0]
        hopes = self._ledger.hopes()
        if hopes is None:
            return None
        best = max(resting, key=lambda e: (hopes.paused.get(e.id, 0.0), -e.number))
        whole = best.spec.task.epochs
        look = self.spec.epochs_of(whole)
        over = self._ledger.begun >= self._trials or self._ledger.exhausted
        least = hopes.new * whole / (whole + look if over else look)
        gain = hopes.paused.get(best.id, 0.0)
        return best if gain > 0 and gain >= least else None

    def places(self, entry: Entry, checkpoints: Checkpoints) -> dict[str, Any]:
        """What the worker of a trial is told of weights: where it leaves its own, and whose it
        begins with."""
        leaves = why_not(entry.spec.method) is None
        told: dict[str, Any] = {"bequest": checkpoints.weights(entry.id) if leaves else None}
        if entry.looking and entry.look is not None:
            told["look"] = {
                "parent": entry.look.parent,
                "weights": checkpoints.weights(entry.look.parent),
                "folder": checkpoints.look(entry.id),
                "epochs": entry.look.epochs,
            }
        return told

    def tidy(self, checkpoints: Checkpoints) -> None:
        """Delete weights that are not kept any more."""
        now = {entry.id for entry in self.bequeathing()}
        for gone in self._kept - now:
            checkpoints.forget_weights(gone)
        self._kept = now

    def is_control(self, entry: Entry) -> bool:
        """Whether a point is trained from scratch whatever its look promises."""
        return share_number(entry.id) < self.spec.control


def network(spec: TrialSpec) -> tuple[Any, ...]:
    """What two trials must share for one to begin with the weights of the other."""
    task = spec.task
    return task.dataset, task.model.model_dump_json(), task.binarize, task.keep_full, len(spec.plan)


def distance(entry: Entry, other: Entry, domains: Mapping[str, Any]) -> float:
    """How far two trials are from each other: the share of layers with another level, and for every
    setting, the method among them, the way between both values as a share of its range; 1 where
    values have no order, or one of the two does not have the setting."""
    mine, theirs = entry.spec.plan, other.spec.plan
    apart = sum(a != b for a, b in zip(mine, theirs, strict=True)) / max(1, len(mine))
    for name in (entry.drawn.keys() | other.drawn.keys()) - set(PLAN_SETTINGS):
        apart += _apart(domains.get(name), entry.drawn.get(name), other.drawn.get(name))
    return apart


def _apart(domain: Any, one: Any, other: Any) -> float:
    if one == other:
        return 0.0
    low, high = getattr(domain, "low", None), getattr(domain, "high", None)
    if low is None or high is None or high <= low or one is None or other is None:
        return 1.0
    if domain.log:
        low, high, one, other = (math.log(value) for value in (low, high, one, other))
    return float(min(1.0, abs(one - other) / (high - low)))


def look_in_words(entry: Entry, quality: Metric) -> str | None:
    """What a look told of a point; None where there was none."""
    look = entry.look
    if look is None:
        return None
    if look.void is not None:
        return look.void
    begun = f"with the weights of {look.parent}"
    if not look.history:
        return f"being looked at {begun}"
    value = quality.text(look.history[-1].get(quality.name), 1)
    return f"{value} after {look.epochs} epoch{'s' * (look.epochs > 1)} {begun}"


@dataclass(frozen=True)
class InheritingReport:
    """What looks did, and what they told of the end."""

    looks: int
    """points that were looked at"""
    trained: int
    """those that were trained from scratch to their end since"""
    resting: int
    """those that were not: they are no points of the front"""
    void: int
    """trials that found no weights and were trained from scratch at once"""
    epochs_trained: int
    epochs_in_full: int
    """of the same points, each trained from scratch"""
    offset: float | None
    """by how much the end is above the look, on average; None before two are known"""
    deviation: float | None
    quality: str

    @property
    def saved(self) -> float:
        """The share of epochs that were not trained."""
        return 1 - self.epochs_trained / self.epochs_in_full if self.epochs_in_full else 0.0

    def sentence(self) -> str:
        """The report in a sentence."""
        void = f", {self.void} found no weights" if self.void else ""
        bias = ""
        if self.offset is not None:
            side = "below" if self.offset < 0 else "above"
            away = f"{abs(self.offset):.3f} ± {self.deviation:.3f} {side}"
            bias = f"; from scratch {self.quality} is {away} the look"
        return (
            f"{self.looks} points were looked at with inherited weights, {self.trained} of them "
            f"trained from scratch, {self.resting} rest and do not count{void}; "
            f"{100 * self.saved:.0f} % of the epochs saved{bias}"
        )


def inheriting_report(config: SearchConfig, entries: Iterable[Entry]) -> InheritingReport:
    """What looks did to the trials of a search."""
    name = config.quality.name
    told = list(entries)
    looked = [e for e in told if e.look is not None and e.look.history]
    settled = [e for e in told if e.state not in (TrialState.RUNNING, TrialState.FAILED)]
    done = [e for e in looked if e.state == TrialState.COMPLETE and name in e.metrics]
    missed = [e.metrics[name] - e.look.history[-1][name] for e in done if e.look is not None]
    known = len(missed) > 1
    return InheritingReport(
        looks=len(looked),
        trained=len(done),
        resting=sum(e.state == TrialState.PAUSED for e in looked),
        void=sum(e.look is not None and e.look.void is not None for e in told),
        epochs_trained=sum(e.epochs_trained for e in settled),
        epochs_in_full=sum(e.spec.task.epochs for e in settled),
        offset=statistics.fmean(missed) if known else None,
        deviation=statistics.stdev(missed) if known else None,
        quality=name,
    )
