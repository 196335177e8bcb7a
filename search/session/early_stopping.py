"""When to give up a trial: its place among the others at the same fraction of their training,
ranked the way a front is. Ray calls it through `schedulers`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bitfront.search.config.known import COSTS
from bitfront.search.config.schema import EarlyStoppingSpec
from bitfront.search.front import Objective, layers
from bitfront.search.ledger.entry import Entry
from bitfront.trainables.methods import METHODS

Row = Mapping[str, float]


@dataclass
class Rung:
    """Trials that have come to one fraction of their training."""

    ids: list[str] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)

    def add(self, trial_id: str, values: list[float]) -> None:
        if trial_id not in self.ids:
            self.ids.append(trial_id)
            self.values.append(values)


class EarlyStopping:
    """Decides at rungs, which are fractions of a trial's own schedule. A trial is compared with
    those of the same family only: soft and hard quantizers learn at different paces."""

    def __init__(self, spec: EarlyStoppingSpec, objectives: Sequence[Objective]) -> None:
        self.spec = spec
        self.objectives = list(objectives)
        self._rungs: dict[tuple[str, float], Rung] = {}

    def remember(self, entry: Entry) -> None:
        """Count a trial of an earlier turn at this search."""
        for row in entry.history:
            self._arrive(entry, row)

    def gives_up(self, entry: Entry, row: Row) -> float | None:
        """The rung at which the trial ranks too low to go on; None when it may go on."""
        arrived = self._arrive(entry, row)
        if arrived is None:
            return None
        share, rung = arrived
        if len(rung.ids) < self.spec.least:
            return None
        kept = max(1, math.ceil(self.spec.keep * len(rung.ids)))
        place = ranking(rung.values, self.objectives).index(rung.ids.index(entry.id))
        if place < kept or self._is_extreme(rung, entry.id):
            return None
        return share

    def is_control(self, entry: Entry) -> bool:
        """Whether the trial runs to its end whatever its rank: a fixed share of all, by their
        ids, from which the price of stopping the others is estimated."""
        return int(entry.id, 16) % 1000 < 1000 * self.spec.control

    def _arrive(self, entry: Entry, row: Row) -> tuple[float, Rung] | None:
        """Enter the trial at the rung this epoch is, if it is one."""
        epochs = entry.spec.task.epochs
        for share in self.spec.rungs:
            at = rung_epoch(share, epochs)
            if row.get("epoch") == at and at < epochs:
                known = {**entry.costs, **row}
                values = [float(known.get(o.name, math.nan)) for o in self.objectives]
                if not all(map(math.isfinite, values)):
                    return None
                rung = self._rungs.setdefault((family(entry), share), Rung())
                rung.add(entry.id, values)
                return share, rung
        return None

    def _is_extreme(self, rung: Rung, trial_id: str) -> bool:
        """Whether no other trial is cheaper, or none is dearer: the ends of the front stay."""
        own = rung.ids.index(trial_id)
        for axis, objective in enumerate(self.objectives):
            costs = [values[axis] for values in rung.values]
            here = costs.pop(own)
            if objective.name in COSTS and not min(costs) <= here <= max(costs):
                return True
        return False


def rung_epoch(share: float, epochs: int) -> int:
    """The first epoch at which so much of the training is done; rounding errors are no epoch."""
    return math.ceil(share * epochs - 1e-9)


def family(entry: Entry) -> str:
    return METHODS.get(entry.spec.method).family


def ranking(values: Sequence[Sequence[float]], objectives: Sequence[Objective]) -> list[int]:
    """Indices from best to worst: by layers of the front, within one by the room a point has
    on the cost axis (the last objective), the loneliest first."""
    ranked: list[int] = []
    for layer in layers(values, objectives):
        by_cost = sorted(layer, key=lambda i: values[i][-1])
        room = {by_cost[0]: math.inf, by_cost[-1]: math.inf}
        for before, here, after in zip(by_cost, by_cost[1:], by_cost[2:], strict=False):
            room[here] = values[after][-1] - values[before][-1]
        ranked += sorted(layer, key=lambda i: (-room[i], i))
    return ranked


@dataclass(frozen=True)
class StoppingReport:
    """What early stopping did, and what it is thought to have cost."""

    stopped: int
    epochs_trained: int
    epochs_in_full: int
    control: int
    tau: dict[float, float]
    """rank correlation of quality at a rung and at the end, over control trials"""
    spared: int
    """control trials it would have stopped"""
    spared_on_front: int
    """of those, how many ended on the front"""

    @property
    def saved(self) -> float:
        return 1 - self.epochs_trained / self.epochs_in_full if self.epochs_in_full else 0.0

    @property
    def front_points_lost(self) -> float | None:
        """Expected number of front points among the stopped trials, from the control trials."""
        return self.stopped * self.spared_on_front / self.spared if self.spared else None

    def sentence(self) -> str:
        text = f"{self.stopped} trials stopped early, {100 * self.saved:.0f} % of the epochs saved"
        taus = [f"{t:.2f} at {100 * share:.0f} %" for share, t in sorted(self.tau.items())]
        if taus:
            text += f"; rank correlation with the end {', '.join(taus)} of training"
        text += f" ({self.control} control trials"
        if self.spared:
            text += f", {self.spared} of them would have been stopped, {self.spared_on_front} of "
            text += "these ended on the front"
        return text + ")"


def report(
    spec: EarlyStoppingSpec,
    objectives: Sequence[Objective],
    entries: Iterable[Entry],
    front: set[str],
) -> StoppingReport:
    """From the trials of a search, as the ledger has them."""
    rule = EarlyStopping(spec, objectives)
    ended = [e for e in entries if e.state in ("complete", "pruned")]
    control = [e for e in ended if e.state == "complete" and rule.is_control(e)]
    spared = [e for e in control if "would_stop_at" in e.metrics]
    quality = next(o for o in objectives if o.name not in COSTS)
    return StoppingReport(
        stopped=sum(e.state == "pruned" for e in ended),
        epochs_trained=sum(len(e.history) for e in ended),
        epochs_in_full=sum(e.spec.task.epochs for e in ended),
        control=len(control),
        tau=_correlations(spec, quality, control),
        spared=len(spared),
        spared_on_front=sum(e.id in front for e in spared),
    )


def _correlations(
    spec: EarlyStoppingSpec, quality: Objective, control: list[Entry]
) -> dict[float, float]:
    from scipy.stats import kendalltau

    found = {}
    for share in spec.rungs:
        pairs = []
        for entry in control:
            at = rung_epoch(share, entry.spec.task.epochs)
            row = next((r for r in entry.history if r.get("epoch") == at), {})
            if quality.name in row and quality.name in entry.metrics:
                pairs.append((row[quality.name], entry.metrics[quality.name]))
        if len(pairs) >= 3:
            tau = float(kendalltau(*zip(*pairs, strict=True)).statistic)
            if math.isfinite(tau):
                found[share] = tau
    return found
