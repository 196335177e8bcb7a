"""A search read back from its ledger: its trials, its front, its state. Imports neither torch nor
Ray. What figures are drawn from is in `figure_data` and `view`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from bitfront.search import benched
from bitfront.search.config.known import is_cost, metrics_of
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.ending import Reached
from bitfront.search.deciding.inheriting import InheritingReport
from bitfront.search.deciding.limits import keeping, limits_json
from bitfront.search.deciding.outlook import Outlook
from bitfront.search.deciding.pausing import PausingReport, saving, saving_json
from bitfront.search.failing import Pattern, patterns
from bitfront.search.front import Front, Objective, hypervolume, hypervolume_share
from bitfront.search.garbage import uncollected
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.networks import Networks
from bitfront.search.ledger.reader import LedgerReader
from bitfront.search.ledger.records import arranged
from bitfront.search.ledger.states import ENDED, TrialState
from bitfront.search.model_health import ModelHealth
from bitfront.search.results.labels import COST_LABELS, ONE_NETWORK, OWN_SHARE
from bitfront.search.results.old_ledgers import as_meant, restate
from bitfront.search.results.stored import check_trials, stored_config
from bitfront.search.session.early_stopping import StoppingReport
from bitfront.search.session.repeats import merged, probabilities
from bitfront.search.session.rows import RowNote
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.metrics import Metric
from bitfront.trainables.registry import is_count
from bitfront.trainables.tasks import kind_for


def _checked_reference(reference: list[float] | None, config: SearchConfig) -> list[float]:
    """The reference point of hypervolumes; a UserError unless it is worse than a perfect network in
    every objective."""
    objectives = config.front_objectives
    if reference is None:
        raise UserError(f"the ledger of '{config.name}' is damaged: it has no reference point")
    if len(reference) != len(objectives) or not all(
        o.sign * r > o.sign * i
        for o, r, i in zip(objectives, reference, ideal_point(config), strict=True)
    ):
        raise UserError(f"the ledger of '{config.name}' is damaged: its reference point")
    return reference


@dataclass
class Results:
    """All trials of one search and the front they make."""

    folder: SearchFolder
    config: SearchConfig
    entries: list[Entry]
    reference: list[float]
    points: list[Entry]
    """one for every finished setting: its first trial, with means over its seeds"""
    front: list[Entry]
    """the non-dominated points of those that keep the limits on what is measured"""
    networks: Networks = field(default_factory=Networks)
    environment: dict[str, str] = field(default_factory=dict)
    """versions and machine of the driver that worked on it last"""
    model: ModelHealth | None = None
    """how good the model of the sampler is; None where it has none"""
    outlook: Outlook | None = None
    """what the next trials may add to the front; None where that is not known"""
    ended_by: Reached | None = None
    """what ended the search before its number of trials; None where nothing did"""
    rows: dict[str, RowNote] = field(default_factory=dict)
    """what the ledger notes of the rows of a paper, by setting"""

    @classmethod
    def of(cls, folder: SearchFolder) -> Results:
        """The results of the search in this folder."""
        config = stored_config(folder)
        folder.check_ledger()
        reader = LedgerReader(folder.ledger_url, config.name, config.objectives, folder.known_owner)
        with uncollected():
            reader.read()
            return cls.from_reader(folder, config, reader)

    @classmethod
    def from_reader(
        cls, folder: SearchFolder, config: SearchConfig, reader: LedgerReader
    ) -> Results:
        """The results of a ledger that has been read; a UserError where it is damaged."""
        reference = [0.0] * len(config.objectives)
        if reader.entries or reader.reference:  # a search without a trial has neither
            check_trials(reader.entries, config)
            reference = _checked_reference(reader.reference, config)
        config = as_meant(config, reader.entries)
        restate(config, reader.entries, reference)
        results = cls.from_entries(folder, config, reader.entries, reference)
        results.networks, results.environment = reader.networks, reader.environment
        results.rows, results.model = reader.rows, reader.model
        results.outlook = reader.outlook
        if reader.ending is not None and reader.ending.holds(config.search):
            results.ended_by = reader.ending
        return results

    @classmethod
    def from_entries(
        cls,
        folder: SearchFolder,
        config: SearchConfig,
        entries: list[Entry],
        reference: list[float],
    ) -> Results:
        """The results of these trials; trials of one setting are one point, with their means."""
        objectives = config.front_objectives
        front = Front(objectives)
        points = {entry.id: entry for entry in merged(entries, objectives)}
        able = keeping(config, points.values())
        for entry in able:
            if entry.values is not None:
                front.add(entry.id, entry.values)
        chances = {e.id: p for e, p in zip(able, probabilities(able, objectives), strict=True)}
        on_front = [replace(points[key], confidence=chances[key]) for key in front.keys]
        return cls(folder, config, entries, reference, list(points.values()), on_front)

    def in_order(self, names: Iterable[str]) -> Results:
        """The same search with its objectives in this order."""
        wanted = list(names)
        order = list(self.config.objectives)
        if wanted == order:
            return self
        objectives = {name: self.config.objectives[name] for name in wanted}
        config = self.config.model_copy(update={"objectives": objectives})
        entries = [
            replace(e, values=e.values and arranged(e.values, order, wanted)) for e in self.entries
        ]
        reference = arranged(self.reference, order, wanted)
        found = self.from_entries(self.folder, config, entries, reference)
        found.networks, found.environment = self.networks, self.environment
        found.rows, found.model = self.rows, self.model
        found.outlook, found.ended_by = self.outlook, self.ended_by
        return found

    @cached_property
    def benched(self) -> benched.Benched | None:
        """The points of the front as measured when the search ended; None where they were not."""
        return benched.read(self.folder)

    @property
    def measured_ms(self) -> dict[str, float]:
        """The measured latency by trial, of those that have one."""
        return {} if self.benched is None else self.benched.milliseconds

    @property
    def front_values(self) -> list[list[float]]:
        """The objectives of every point of the front."""
        return [entry.values for entry in self.front if entry.values is not None]

    @property
    def hypervolume(self) -> float:
        """The hypervolume in the units of the objectives."""
        return hypervolume(self.front_values, self.reference, self.config.front_objectives)

    @property
    def hypervolume_share(self) -> float:
        """The hypervolume as a share of the box between the reference and a perfect network that
        costs nothing."""
        if not self.front:
            return 0.0
        ideal = ideal_point(self.config)
        return hypervolume_share(
            self.front_values, self.reference, ideal, self.config.front_objectives
        )

    def counts(self) -> dict[str, int]:
        """How many trials are in each state."""
        found = Counter(entry.state for entry in self.entries)
        return {s: found[s] for s in TrialState}

    @property
    def failed(self) -> list[Entry]:
        """The trials that failed, in the order they were started."""
        return [e for e in self.entries if e.state == TrialState.FAILED]

    def failures(self) -> dict[str, int]:
        """How many trials failed, by reason."""
        return dict(Counter(e.failure or "error" for e in self.failed))

    @property
    def failing(self) -> list[Pattern]:
        """What the trials that failed have in common."""
        return patterns(self.entries, self.networks) if self.failed else []

    @property
    def state(self) -> str:
        """running, interrupted or complete."""
        return "running" if self.folder.running else self.state_without_driver

    @property
    def state_without_driver(self) -> str:
        """interrupted or complete: the state of the search once its driver has ended."""
        ended = sum(e.state in (*ENDED, TrialState.PAUSED) for e in self.entries)
        open_trials = any(e.state == TrialState.RUNNING for e in self.entries)
        enough = self.space_exhausted or self.ended_by is not None
        if open_trials or (ended < self.config.search.trials and not enough):
            return "interrupted"
        return "complete"

    @property
    def space_exhausted(self) -> bool:
        """Whether the sampler found no further point within the limits."""
        return (self.folder.path / "exhausted").exists()

    @property
    def different_trials(self) -> int | None:
        """The number of points of an exhausted space within the limits; None where unknown."""
        try:
            return int((self.folder.path / "exhausted").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # empty where the space was too large to list
            return None

    def find(self, trial: str) -> Entry:
        """The trial with this id, the start of an id, this number (`t12`), or this name of a run in
        MLflow or of a recipe; a UserError where there is none or more than one."""
        trial = (trial.split() or [""])[0].removeprefix(f"{self.config.name}-")
        if trial.startswith("t") and is_count(trial[1:]):
            number = int(trial[1:])
            matches = [e for e in self.entries if e.number == number]
        else:
            matches = [e for e in self.entries if trial and e.id.startswith(trial)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UserError(f"trial '{trial}' is ambiguous: {', '.join(e.id for e in matches)}")
        hint = did_you_mean(trial, [e.id for e in self.entries])
        raise UserError(f"search '{self.config.name}' has no trial '{trial}', {hint}")

    def as_json(self) -> dict[str, Any]:
        """The front as `bitfront front --json` prints it."""
        names = list(self.config.objectives)
        return {
            "search": self.config.name,
            "objectives": dict(self.config.objectives),
            "reference": dict(zip(names, self.reference, strict=True)),
            "hypervolume": self.hypervolume,
            "hypervolume_share": self.hypervolume_share,
            "full_flops": self.full_flops if self.entries else None,
            "seed_noise": self.seed_noise,
            "points": [self._point_json(entry) for entry in self.front],
            "limits": limits_json(self.config, self.points),
        }

    def _point_json(self, entry: Entry) -> dict[str, Any]:
        found = self.measured_ms.get(entry.id)
        return point_json(entry) | ({} if found is None else {benched.MEASURED: found})

    def status_json(self) -> dict[str, Any]:
        """The search as `bitfront status --json` prints it."""
        state, trials = self.state, self.counts()
        waits = self.folder.waits
        # The trials of a driver that is gone, or has no place for them, wait.
        if state != "running" or waits is not None:
            trials[TrialState.WAITING] += trials[TrialState.RUNNING]
            trials[TrialState.RUNNING] = 0
        return {
            "search": self.config.name,
            "state": state,
            "waits": waits,
            "trials": trials,
            "budget": self.config.search.budget,
            "ended_by": _told(self.ended_by),
            "outlook": _told(self.outlook),
            "limits": limits_json(self.config, self.points),
            "failures": self.failures(),
            "failing": [{**asdict(p), "words": str(p)} for p in self.failing],
            "failed": [
                {"trial": e.id, "reason": e.failure, "message": e.message, "traceback": e.traceback}
                for e in self.failed
            ],
            "front": len(self.front),
            "hypervolume": self.hypervolume,
            "hypervolume_share": self.hypervolume_share,
            f"best_{self.config.quality.bare}": self.best,
            "model": _told(self.model),
            **saving_json(self.saving),
        }

    @property
    def told(self) -> list[str]:
        """Sentences on the model of the sampler and on what it expects."""
        found = [each.sentence() for each in (self.model, self.outlook) if each is not None]
        return [sentence for sentence in found if sentence]

    @property
    def saving(self) -> StoppingReport | PausingReport | InheritingReport | None:
        """What early stopping, pausing or inheriting did; None where it has none of them."""
        return saving(self.config, self.entries, {entry.id for entry in self.front})

    @property
    def best(self) -> float | None:
        """The best quality of a point, the mean over its seeds, as the front has it."""
        quality = self.config.quality
        able = keeping(self.config, self.points)
        found = [e.metrics[quality.name] for e in able if quality.name in e.metrics]
        return (max if quality.maximize else min)(found, default=None)

    def quality_and(self, cost: str) -> tuple[list[list[float]], list[Objective]]:
        """(quality, cost) of every point of the front, and both as objectives."""
        quality = self.config.quality
        points = [[e.metrics[quality.name], e.costs[cost]] for e in self.front]
        return points, [Objective(quality.name, quality.maximize), Objective(cost, False)]

    @property
    def full_flops(self) -> float:
        """The flops of the dearest full-precision network, of which `flops_pct` is a percentage."""
        # Rounded: the division may miss the whole number by its last bit.
        return round(max(100 * e.costs["flops"] / e.costs["flops_pct"] for e in self.entries))

    @property
    def one_network(self) -> bool:
        """Whether the dearest network is the network of every trial."""
        return all(math.isclose(e.costs["flops_pct"], e.costs[OWN_SHARE]) for e in self.entries)

    @property
    def seed_noise(self) -> float | None:
        """The spread of the quality over seeds, estimated from all points that have several."""
        return next((e.spread for e in self.points if e.seeds > 1), None)

    @property
    def cost_name(self) -> str:
        """The cost on the axis of figures: the first objective that is a cost."""
        return next((o for o in self.config.objectives if is_cost(o)), "flops")

    @property
    def shown_cost(self) -> str:
        """The name of the cost in the unit of the axis: flops are shown in percent."""
        return "flops_pct" if self.in_percent else self.cost_name

    def label_of(self, cost: str) -> str:
        """The label of a cost on an axis."""
        if cost == "flops_pct" and self.one_network:
            return ONE_NETWORK
        return COST_LABELS.get(cost, cost)

    @property
    def figure_quality(self) -> Metric:
        """The metric on the quality axis of figures: accuracy, where a search minimizes the loss of
        a classifier."""
        quality = self.config.quality
        return self.config.kind.quality if quality.name == "val_loss" else quality

    @property
    def in_percent(self) -> bool:
        """Whether figures show the cost as a share of the dearest network."""
        return self.cost_name in ("flops", "flops_pct")


def _told(found: ModelHealth | Outlook | Reached | None) -> dict[str, Any] | None:
    """What the ledger notes of a search, with its sentence; None where it notes nothing."""
    return None if found is None else asdict(found) | {"words": found.sentence()}


def config_to_continue(folder: SearchFolder) -> SearchConfig:
    """The stored configuration, with the names of costs that version 0.1 used translated."""
    config = stored_config(folder)
    folder.check_ledger()
    if "flops_pct" not in {*config.objectives, *config.limits}:
        return config
    return Results.of(folder).config


def ideal_point(config: SearchConfig) -> list[float]:
    """The objectives of a perfect network that costs nothing."""
    ideal = {metric.name: metric.ideal for metric in config.kind.metrics}
    return [ideal.get(name, 0.0) for name in config.objectives]


def point_json(entry: Entry) -> dict[str, Any]:
    """A point of the front as `bitfront front --json` prints it."""
    metrics = metrics_of(kind_for(entry.spec.task))
    return {
        "trial": entry.id,
        "number": entry.number,
        "method": entry.spec.method,
        "plan": entry.spec.plan,
        **{k: entry.metrics[k] for k in metrics if k in entry.metrics},
        **entry.costs,
        "params": entry.drawn,
        "model": entry.spec.task.model.model_dump(),
        "optimizer": entry.spec.task.optimizer.model_dump(),
        "seconds": entry.seconds,
        "seeds": entry.seeds,
        "spread": entry.own_spread,
        "p_front": entry.confidence,
    }
