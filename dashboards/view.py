"""What a search looks like: plain data that every picture and page is made from. `search.view`
makes it from the ledger; nothing here reads or computes anything heavy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from bitfront.dashboards.figures.front import FrontPoint, Labels
from bitfront.search.front import Objective
from bitfront.search.ledger.states import TrialState

T = TypeVar("T")


@dataclass(frozen=True)
class Axis:
    """Something measured or counted, and how people read it."""

    name: str
    label: str
    """with its unit and, of a cost, its convention"""
    maximize: bool
    percent: bool = False
    """a fraction in the ledger, percent for people"""
    short: str = ""

    def shown(self, value: float) -> float:
        return 100 * value if self.percent else value

    def text(self, value: float | None) -> str:
        """With its unit, where that is percent."""
        if value is None:
            return "-"
        if self.percent:
            return f"{100 * value:.2f} %"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

    @property
    def better(self) -> str:
        return "higher is better" if self.maximize else "lower is better"


class Layer(NamedTuple):
    """A layer a plan decides."""

    name: str
    block: str
    stage: str


@dataclass(frozen=True)
class TrialView:
    """One trial as the ledger has it."""

    id: str
    number: int
    state: TrialState
    method: str
    plan: str
    network: str
    """the key of its layers in `SearchView.networks`"""
    seed: int
    params: Mapping[str, Any]
    """what was drawn for it, besides the letters of the plan, by whole names"""
    values: Mapping[str, float]
    """costs and, where it ended, metrics, by name"""
    epochs: int
    curve: Sequence[tuple[int, float]] = ()
    """(epoch, quality)"""
    rungs: Mapping[float, float] = field(default_factory=dict)
    """quality at fractions of training where early stopping compares"""
    stopped_at: float | None = None
    would_stop_at: float | None = None
    """where a control trial would have been stopped"""
    failure: str | None = None
    message: str | None = None
    started: float | None = None
    ended: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """the same for people: short names, values as text, without the method"""

    @property
    def told(self) -> str:
        """What it is, in a line, the plan left out."""
        drawn = (f"{name}={text}" for name, text in self.settings.items())
        return " ".join([self.id, self.method, *drawn])

    @property
    def seconds(self) -> float | None:
        both = self.started is not None and self.ended is not None
        return self.ended - self.started if both else None  # type: ignore[operator]


class HypervolumeStep(NamedTuple):
    """After so many ended trials and so many seconds: the share of the box."""

    trials: int
    seconds: float
    share: float


class Budget(NamedTuple):
    """A line across the cost axis."""

    name: str
    value: float
    """in the unit of the front's cost axis"""


@dataclass(frozen=True)
class SearchView:
    """One search at one moment."""

    name: str
    description: str
    dataset: str
    model: str
    state: str
    trials: Sequence[TrialView]
    points: Sequence[FrontPoint]
    """a point for every setting that was finished, with means over its seeds"""
    labels: Labels
    front: Sequence[str]
    """ids of the trials on the front, cheapest first"""
    objectives: Sequence[Axis]
    objective_values: Mapping[str, Sequence[float]]
    """by trial id, of every point: means over its seeds, in the order of `objectives`"""
    quality: Axis
    cost: Axis
    reference: Sequence[float]
    ideal: Sequence[float]
    """a perfect network that costs nothing"""
    hypervolume: Sequence[HypervolumeStep]
    budgets: Sequence[Budget]
    networks: Mapping[str, Sequence[Layer]]
    budget_of_trials: int
    epochs: int
    seconds: float
    rungs: Sequence[float] = ()
    stopping: str | None = None
    """what early stopping did, in a sentence"""
    yaml: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    commands: Sequence[tuple[str, str]] = ()
    """(command, what it does) that reproduce the search or go on from it"""
    full_flops: float | None = None
    """of the dearest network in full precision, which percentages are of; None without trials"""
    all_methods: Sequence[str] = ()
    """those of the search, where this view has only some of its trials"""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.dataset}, {self.model}"

    @cached_property
    def point_of(self) -> dict[str, FrontPoint]:
        """Points by the trial that stands for them."""
        return {point.trial: point for point in self.points}

    @cached_property
    def by_id(self) -> dict[str, TrialView]:
        return {trial.id: trial for trial in self.trials}

    @cached_property
    def on_front(self) -> set[str]:
        return set(self.front)

    @property
    def hypervolume_share(self) -> float:
        return self.hypervolume[-1].share if self.hypervolume else 0.0

    @property
    def counts(self) -> Counter[str]:
        return Counter(trial.state for trial in self.trials)

    @property
    def methods(self) -> Sequence[str]:
        """In the order that fixes their colours."""
        return self.all_methods or sorted({trial.method for trial in self.trials})

    @property
    def front_objectives(self) -> list[Objective]:
        return [Objective(axis.name, axis.maximize) for axis in self.objectives]

    def in_order(self, names: Sequence[str]) -> SearchView:
        """The same search with its objectives in this order."""
        places = [[axis.name for axis in self.objectives].index(name) for name in names]

        def moved(values: Sequence[T]) -> list[T]:
            return [values[place] for place in places]

        return replace(
            self,
            objectives=moved(self.objectives),
            objective_values={k: moved(v) for k, v in self.objective_values.items()},
            reference=moved(self.reference),
            ideal=moved(self.ideal),
        )

    def layers_of(self, trial: TrialView) -> Sequence[Layer]:
        """Its layers; numbered ones where the network is not known here."""
        known = self.networks.get(trial.network, ())
        if len(known) == len(trial.plan):
            return known
        return [Layer(f"layer {i + 1}", f"layer {i + 1}", "") for i in range(len(trial.plan))]
