"""A search read back: its finished trials, their front, its state. No torch, no Ray."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bitfront.dashboards.figures.front import FrontPoint, Labels
from bitfront.dashboards.figures.pairs import PairPoint
from bitfront.search.config.bounds import REFERENCE_FACTOR
from bitfront.search.config.known import COSTS, METRICS
from bitfront.search.config.mistakes import first_mistake
from bitfront.search.config.schema import SEARCH_FORMAT, SearchConfig
from bitfront.search.config.space import build_space
from bitfront.search.front import Front, Objective, hypervolume, hypervolume_share
from bitfront.search.garbage import uncollected
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder, is_name, list_searches
from bitfront.search.ledger.networks import Networks
from bitfront.search.ledger.reader import LedgerReader
from bitfront.search.ledger.records import arranged
from bitfront.search.results.settings import settings_of
from bitfront.search.session.early_stopping import StoppingReport, report
from bitfront.search.session.repeats import merged, probabilities
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.registry import is_count
from bitfront.trainables.tasks import Metric
from bitfront.trainables.text_files import MOST_YAML_BYTES, check_format, load_yaml, read_text

COST_LABELS = {
    "flops": "FLOPs, MixBin convention",
    "flops_pct": "FLOPs, MixBin convention, % of the dearest FP network",
    "flops_own_pct": "FLOPs, MixBin convention, % of the same network in FP",
    "ops64": "OPs, Bi-Real convention (binary / 64)",
    "bops": "bit operations",
    "bytes": "bytes of the packed checkpoint",
    "parameters": "parameters",
}
# The same where a search has one network.
ONE_NETWORK = "FLOPs, MixBin convention, % of FP"
OWN_SHARE = "flops_own_pct"


# At the beginning of a line: a key of the search itself.
FORMAT_LINE = re.compile(r"^bitfront_search:", re.MULTILINE)


def newest_readable(root: Path) -> SearchFolder | None:
    """The newest search whose YAML can be read; of damaged ones alone, the newest."""
    searches = list_searches(root)
    for folder in reversed(searches):
        try:
            stored_config(folder)
            return folder
        except UserError:
            continue
    return searches[-1] if searches else None


def stored_config(folder: SearchFolder) -> SearchConfig:
    file = folder.config_file
    text = read_text(file, MOST_YAML_BYTES, stored=True)
    # Version 0.1 wrote no format, and left 1e5 without quotes where it was a text.
    old = FORMAT_LINE.search(text) is None
    data, _ = load_yaml(text, str(file), plain=old, fault="damaged: not valid YAML")
    if not isinstance(data, dict):
        raise UserError(f"{file}: damaged: not a mapping of keys")
    check_format(data.get("bitfront_search"), SEARCH_FORMAT, f"{file}: the search")
    try:
        config = SearchConfig.model_validate(data)
    except ValidationError as error:
        path, told = first_mistake(error, data)
        reason = f"{'.'.join(map(str, path))}: {told}"
        raise UserError(f"{file}: damaged, or of another version: {reason}") from None
    wrong = _unknown_name(config)
    if wrong is not None:
        raise UserError(f"{file}: damaged, or of another version: {wrong}")
    return config


def _unknown_name(config: SearchConfig) -> str | None:
    """What everything that shows a search relies on, without building its space."""
    if not is_name(config.name):
        return f"{quoted(config.name)} is no name of a search"
    try:
        known = {metric.name for metric in config.kind.metrics}
    except UserError as error:
        return error.message
    unknown = (set(config.objectives) - known - set(COSTS)) | (set(config.limits) - set(COSTS))
    if unknown:
        return f"{quoted(min(unknown))} is no metric or cost"
    if not set(config.objectives) & known:
        return "no metric among its objectives"
    if config.paper is not None and config.paper.metric not in known:
        return f"{quoted(config.paper.metric)} is no metric"
    return None


def _check_trials(entries: list[Entry], config: SearchConfig) -> None:
    """Every trial has the numbers its search is about."""
    metrics = {name for name in config.objectives if name not in COSTS}
    costs = {"flops", "flops_pct", "parameters"} | (set(config.objectives) - metrics)
    for entry in entries:
        wrong = None
        if not costs <= set(entry.costs) or entry.costs["flops_pct"] <= 0:
            wrong = "costs"
        elif entry.state == "complete" and not metrics <= set(entry.metrics):
            wrong = "metrics"
        elif entry.state == "complete" and (
            entry.values is None or len(entry.values) != len(config.objectives)
        ):
            wrong = "values"
        if wrong is not None:
            raise UserError(
                f"the ledger of '{config.name}' cannot be read: trial {entry.number} of the ledger "
                f"is damaged: {wrong}"
            )


def _checked_reference(reference: list[float] | None, config: SearchConfig) -> list[float]:
    """What hypervolumes are measured from: worse than a perfect network in everything."""
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
    """one for every setting that was finished: its first trial, with means over its seeds"""
    front: list[Entry]
    networks: Networks = field(default_factory=Networks)
    environment: dict[str, str] = field(default_factory=dict)
    """of the last driver that worked on it"""

    @classmethod
    def of(cls, folder: SearchFolder) -> Results:
        config = stored_config(folder)
        reader = LedgerReader(folder.ledger_url, config.name, config.objectives)
        with uncollected():
            reader.read()
            return cls.from_reader(folder, config, reader)

    @classmethod
    def from_reader(
        cls, folder: SearchFolder, config: SearchConfig, reader: LedgerReader
    ) -> Results:
        reference = [0.0] * len(config.objectives)
        if reader.entries or reader.reference:  # neither: stopped before the first trial
            _check_trials(reader.entries, config)
            reference = _checked_reference(reader.reference, config)
        config = as_meant(config, reader.entries)
        restate(config, reader.entries, reference)
        results = cls.from_entries(folder, config, reader.entries, reference)
        results.networks, results.environment = reader.networks, reader.environment
        return results

    @classmethod
    def from_entries(
        cls,
        folder: SearchFolder,
        config: SearchConfig,
        entries: list[Entry],
        reference: list[float],
    ) -> Results:
        """Points trained with several seeds count with their means."""
        objectives = config.front_objectives
        front = Front(objectives)
        points = {entry.id: entry for entry in merged(entries, objectives)}
        for entry in points.values():
            if entry.values is not None:
                front.add(entry.id, entry.values)
        chances = dict(zip(points, probabilities(list(points.values()), objectives), strict=True))
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
        return found

    @property
    def front_values(self) -> list[list[float]]:
        return [entry.values for entry in self.front if entry.values is not None]

    @property
    def hypervolume(self) -> float:
        return hypervolume(self.front_values, self.reference, self.config.front_objectives)

    @property
    def hypervolume_share(self) -> float:
        """The hypervolume as a share of the box between the reference and a perfect, free
        network."""
        if not self.front:
            return 0.0
        ideal = ideal_point(self.config)
        return hypervolume_share(
            self.front_values, self.reference, ideal, self.config.front_objectives
        )

    def counts(self) -> dict[str, int]:
        found = Counter(entry.state for entry in self.entries)
        return {s: found[s] for s in ("complete", "pruned", "failed", "running", "waiting")}

    def failures(self) -> dict[str, int]:
        return dict(Counter(e.failure or "error" for e in self.entries if e.state == "failed"))

    @property
    def state(self) -> str:
        return "running" if self.folder.running else self.state_without_driver

    @property
    def state_without_driver(self) -> str:
        """What the search is once nobody works on it."""
        ended = sum(e.state in ("complete", "pruned", "failed") for e in self.entries)
        open_trials = any(e.state == "running" for e in self.entries)
        if open_trials or (ended < self.config.search.trials and not self.space_exhausted):
            return "interrupted"
        return "complete"

    @property
    def space_exhausted(self) -> bool:
        return (self.folder.path / "exhausted").exists()

    @property
    def different_trials(self) -> int | None:
        """Of an exhausted space: how many there are within the limits; None where nobody knows."""
        try:
            return int((self.folder.path / "exhausted").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # empty where the space was too large to list
            return None

    def find(self, trial: str) -> Entry:
        """A trial by its id, an unambiguous start of it, or its number (`t12`); the name of its run
        in MLflow or of its recipe will do."""
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
        names = list(self.config.objectives)
        return {
            "search": self.config.name,
            "objectives": dict(self.config.objectives),
            "reference": dict(zip(names, self.reference, strict=True)),
            "hypervolume": self.hypervolume,
            "hypervolume_share": self.hypervolume_share,
            "full_flops": self.full_flops if self.entries else None,
            "seed_noise": self.seed_noise,
            "points": [point_json(entry) for entry in self.front],
        }

    def status_json(self) -> dict[str, Any]:
        state, trials = self.state, self.counts()
        if state != "running":  # the trials of a driver that is gone wait for the next one
            trials["waiting"] += trials["running"]
            trials["running"] = 0
        return {
            "search": self.config.name,
            "state": state,
            "trials": trials,
            "budget": self.config.search.trials,
            "failures": self.failures(),
            "front": len(self.front),
            "hypervolume": self.hypervolume,
            "hypervolume_share": self.hypervolume_share,
            f"best_{self.config.quality.bare}": self.best,
            "early_stopping": asdict(stopping) if (stopping := self.stopping) else None,
        }

    @property
    def stopping(self) -> StoppingReport | None:
        """What early stopping did in this search."""
        spec = self.config.search.early_stopping
        if spec is None:
            return None
        front = {entry.id for entry in self.front}
        return report(spec, self.config.front_objectives, self.entries, front)

    @property
    def best(self) -> float | None:
        """The best quality of a point, the mean over its seeds, as the front has it."""
        quality = self.config.quality
        found = [e.metrics[quality.name] for e in self.points if quality.name in e.metrics]
        return (max if quality.maximize else min)(found, default=None)

    def quality_and(self, cost: str) -> tuple[list[list[float]], list[Objective]]:
        """The front's points in quality and that cost, and which way each is better."""
        quality = self.config.quality
        points = [[e.metrics[quality.name], e.costs[cost]] for e in self.front]
        return points, [Objective(quality.name, quality.maximize), Objective(cost, False)]

    @property
    def full_flops(self) -> float:
        """The flops that all percentages of a search are of: its dearest network in full
        precision. Every trial knows it."""
        # A count of whole operations, which the division may miss by its last bit.
        return round(max(100 * e.costs["flops"] / e.costs["flops_pct"] for e in self.entries))

    @property
    def one_network(self) -> bool:
        """Whether a share of the dearest network and of a trial's own one are the same."""
        return all(math.isclose(e.costs["flops_pct"], e.costs[OWN_SHARE]) for e in self.entries)

    @property
    def seed_noise(self) -> float | None:
        """The spread of the quality over seeds, estimated from all points that have several."""
        return next((e.spread for e in self.points if e.seeds > 1), None)

    @property
    def cost_name(self) -> str:
        """The cost on the figure's axis: the first objective that is one."""
        return next((o for o in self.config.objectives if o in COST_LABELS), "flops")

    @property
    def shown_cost(self) -> str:
        """The same in the unit of the axis: flops in percent."""
        return "flops_pct" if self._in_percent else self.cost_name

    def label_of(self, cost: str) -> str:
        """A cost on an axis."""
        return ONE_NETWORK if cost == "flops_pct" and self.one_network else COST_LABELS[cost]

    def figure_points(self) -> list[FrontPoint]:
        front = {entry.id: entry for entry in self.front}
        cost, quality = self.cost_name, self.figure_quality
        in_percent = self._in_percent
        told = {cost, *(["flops_pct"] if in_percent else [])}
        told |= {OWN_SHARE} if self.one_network else set()
        return [
            FrontPoint(
                trial=e.id,
                method=e.spec.method,
                plan=e.spec.plan,
                accuracy=e.metrics[quality.name],
                cost=e.costs[cost],
                cost_pct=e.costs["flops_pct"] if in_percent else None,
                on_front=e.id in front,
                extra={
                    **{k: _plain(v) for k, v in e.costs.items() if k not in told},
                    **_certainty(front.get(e.id, e), quality, self.config.quality),
                },
                settings=settings_of(e),
                drawn={name: value for name, value in e.drawn.items() if name != "method"},
                seeds=e.seeds,
            )
            for e in self.points
            if quality.name in e.metrics
        ]

    def pair_points(self) -> tuple[list[PairPoint], list[str]]:
        """Every finished trial in all objectives, shares in percent, and what those are called."""
        kind, names = self.config.kind, list(self.config.objectives)
        metrics = {m.name: m for m in kind.metrics}
        labels = [metric_label(metrics[n]) if n in metrics else self.label_of(n) for n in names]
        scale = [100.0 if n in metrics and metrics[n].share else 1.0 for n in names]
        on_front = {entry.id for entry in self.front}
        told = {point.trial: point.told for point in self.figure_points()}
        return [
            PairPoint(
                e.id,
                tuple(s * v for s, v in zip(scale, e.values, strict=True)),
                e.id in on_front,
                told.get(e.id, e.id),
            )
            for e in self.points
            if e.values is not None
        ], labels

    def figure_labels(self) -> Labels:
        quality = self.figure_quality
        return {
            "accuracy_label": metric_label(quality),
            "cost_label": self.label_of(self.shown_cost),
            "share": quality.share,
            "maximize": quality.maximize,
            "budgets": self.budgets(),
        }

    def budgets(self) -> list[tuple[str, float]]:
        """Limits on the cost of the figure's axis, in its unit: (name, value)."""
        shown = self.shown_cost
        found = []
        for name in dict.fromkeys((shown, self.cost_name)):
            limit = self.config.limits.get(name)
            if limit is None or limit.max is None or (name != shown and not self.entries):
                continue
            value = limit.max if name == shown else 100 * limit.max / self.full_flops
            found.append((f"limit: {name} {limit.max:g}", value))
        return found

    @property
    def figure_quality(self) -> Metric:
        """What a figure shows beside the cost: a search for the least loss of a classifier shows
        its accuracy."""
        quality = self.config.quality
        return quality if quality.share else self.config.kind.quality

    @property
    def _in_percent(self) -> bool:
        return self.cost_name in ("flops", "flops_pct")


# --- ledgers of version 0.1 -----------------------------------------------------------------------
# Their `flops_pct` is of each trial's own network, which is `flops_own_pct` now.


def as_meant(config: SearchConfig, entries: Iterable[Entry]) -> SearchConfig:
    """The configuration of a search that bitfront 0.1 began, in the words of today: an objective or
    a limit on `flops_pct` was on what is `flops_own_pct` now; with one network it is the same."""
    several = any(name.startswith("model.") for name in config.space)
    if not several or not any(e.restated or OWN_SHARE not in e.costs for e in entries):
        return config

    def renamed(keys: dict[str, Any]) -> dict[str, Any]:
        return {OWN_SHARE if k == "flops_pct" else k: v for k, v in keys.items()}

    named = {key: renamed(getattr(config, key)) for key in ("objectives", "limits")}
    return config.model_copy(update=named)


def config_to_continue(folder: SearchFolder) -> SearchConfig:
    """The stored configuration, as it was meant when the search was begun."""
    config = stored_config(folder)
    if "flops_pct" not in {*config.objectives, *config.limits}:
        return config
    return Results.of(folder).config


def restate(config: SearchConfig, entries: Sequence[Entry], reference: Sequence[float]) -> None:
    """Give trials that have only a share of their own network that of the dearest one."""
    if all(OWN_SHARE in entry.costs for entry in entries):
        return
    full = _full_flops(config, entries, reference)
    for entry in entries:
        entry.restate(full)


def _full_flops(
    config: SearchConfig, entries: Sequence[Entry], reference: Sequence[float]
) -> float:
    """Of the dearest network in full precision, for a ledger that does not say: from the reference
    point; of an only network from any trial; else the space is built again."""
    names = list(config.objectives)
    if "flops" in names and any(reference):
        return round(reference[names.index("flops")] / REFERENCE_FACTOR)
    own = (e.costs.get(OWN_SHARE, e.costs["flops_pct"]) for e in entries)
    tried = max(100 * e.costs["flops"] / share for e, share in zip(entries, own, strict=True))
    if not any(name.startswith("model.") for name in config.space):
        return round(tried)
    return build_space(config).full_flops


# --------------------------------------------------------------------------------------------------


def metric_label(metric: Metric) -> str:
    return f"validation {metric.label}{', %' if metric.share else ''}"


def _plain(value: float) -> str:
    """Counts in full."""
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


def _certainty(point: Entry, quality: Metric, measured: Metric) -> dict[str, str]:
    """`measured` is what spread and confidence are of; a figure may show another metric."""
    found = {"seeds": str(point.seeds)}
    if point.own_spread is not None and quality.name == measured.name:
        found["spread"] = quality.number(point.own_spread)
    if point.confidence is not None:
        found["sure %"] = f"{100 * point.confidence:.0f}"
    return found


def ideal_point(config: SearchConfig) -> list[float]:
    """A perfect network that costs nothing."""
    ideal = {metric.name: metric.ideal for metric in config.kind.metrics}
    return [ideal.get(name, 0.0) for name in config.objectives]


def point_json(entry: Entry) -> dict[str, Any]:
    return {
        "trial": entry.id,
        "number": entry.number,
        "method": entry.spec.method,
        "plan": entry.spec.plan,
        **{k: entry.metrics[k] for k in METRICS if k in entry.metrics},
        **entry.costs,
        "params": entry.drawn,
        "model": entry.spec.task.model.model_dump(),
        "optimizer": entry.spec.task.optimizer.model_dump(),
        "seconds": entry.seconds,
        "seeds": entry.seeds,
        "spread": entry.own_spread,
        "p_front": entry.confidence,
    }
