"""Early stopping: a trial is stopped for its rank among the others at the same fraction of their
training, ranked as a front is. Ray calls it through `cluster/scheduler.py`."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bitfront.search.config.known import is_cost
from bitfront.search.config.schema import EarlyStoppingSpec
from bitfront.search.front import Objective, layers
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.trainables.methods import METHODS
from bitfront.trainables.own_code import is_reference, shown

Row = Mapping[str, float]


@dataclass
class Rung:
    """The trials that have reached one fraction of their training, with their values there."""

    ids: list[str] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)

    def add(self, trial_id: str, values: list[float]) -> None:
        """Add a trial, unless it is there already."""
        if trial_id not in self.ids:
            self.ids.append(trial_id)
            self.values.append(values)


class EarlyStopping:
    """Decides at rungs, which are fractions of a trial's own schedule. Trials are compared within a
    family of methods only: soft and hard quantizers learn at different speeds."""

    def __init__(self, spec: EarlyStoppingSpec, objectives: Sequence[Objective]) -> None:
        self.spec = spec
        self.objectives = list(objectives)
        self._rungs: dict[tuple[str, float], Rung] = {}

    def remember(self, entry: Entry) -> None:
        """Add a trial of an earlier turn to its rungs."""
        for row in entry.history:
            self._arrive(entry, row)

    def gives_up(self, entry: Entry, row: Row) -> float | None:
        """The rung at which the trial ranks too low and is stopped; None when it goes on."""
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
        """Whether the trial runs to its end whatever its rank. Control trials are a fixed share of
        all, chosen by id; from them the loss by stopping the others is estimated."""
        return share_number(entry.id) < self.spec.control

    def _arrive(self, entry: Entry, row: Row) -> tuple[float, Rung] | None:
        """The rung of this epoch with the trial added to it; None where the epoch is no rung."""
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
        """Whether no other trial is cheaper, or none dearer: the ends of the front are kept."""
        own = rung.ids.index(trial_id)
        for axis, objective in enumerate(self.objectives):
            costs = [values[axis] for values in rung.values]
            here = costs.pop(own)
            if is_cost(objective.name) and not min(costs) <= here <= max(costs):
                return True
        return False


def share_number(trial_id: str) -> float:
    """An id as a number in [0, 1), by which a share of all trials is chosen. Ids of a search are
    hexadecimal; any other name gets its checksum."""
    hexadecimal = re.fullmatch("[0-9a-f]+", trial_id) is not None
    number = int(trial_id, 16) if hexadecimal else zlib.crc32(trial_id.encode())
    return number % 1000 / 1000


def rung_epoch(share: float, epochs: int) -> int:
    """The first epoch by which this share of the training is done, but for rounding errors."""
    return math.ceil(share * epochs - 1e-9)


def family(entry: Entry) -> str:
    """The family of the trial's method. Code of the user's own is not run for it."""
    if is_reference(entry.spec.method):
        return shown(entry.spec.method)
    return METHODS.get(entry.spec.method).family


def ranking(values: Sequence[Sequence[float]], objectives: Sequence[Objective]) -> list[int]:
    """Indices from best to worst: by non-dominated layers, and within a layer by the distance of
    the two neighbours on the cost axis (the last objective), the most isolated point first, as
    NSGA-II does by crowding distance (Deb et al., 2002, doi:10.1109/4235.996017)."""
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
    """What early stopping did, with an estimate of what it lost."""

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
        """The share of epochs that were not trained."""
        return 1 - self.epochs_trained / self.epochs_in_full if self.epochs_in_full else 0.0

    @property
    def front_points_lost(self) -> float | None:
        """The expected number of front points among the stopped trials, from the control trials;
        None where none of them would have been stopped."""
        return self.stopped * self.spared_on_front / self.spared if self.spared else None

    def sentence(self) -> str:
        """The report in a sentence."""
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
    """The report on the trials of a search; `front` are the ids on its front."""
    rule = EarlyStopping(spec, objectives)
    ended = [e for e in entries if e.state in (TrialState.COMPLETE, TrialState.STOPPED)]
    control = [e for e in ended if e.state == TrialState.COMPLETE and rule.is_control(e)]
    spared = [e for e in control if "would_stop_at" in e.metrics]
    quality = next(o for o in objectives if not is_cost(o.name))
    return StoppingReport(
        stopped=sum(e.state == TrialState.STOPPED for e in ended),
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
    """Kendall's tau of the quality at each rung and at the end, over the control trials."""
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
