"""A search at one moment, as plain data that every figure and page is drawn from. `reader` makes it
from the ledger; nothing here reads a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from bitfront.search.front import Objective
from bitfront.search.ledger.states import TrialState
from bitfront.search.live.busy import BusyClock
from bitfront.search.live.turn import Turn
from bitfront.search.recipes.finals import FinalTraining
from bitfront.search.results.points import FrontPoint, Labels

T = TypeVar("T")


@dataclass(frozen=True)
class Axis:
    """A metric or a cost on an axis: its label, its unit, and which direction is better."""

    name: str
    label: str
    """with the unit and, of a cost, the convention"""
    maximize: bool
    percent: bool = False
    """a fraction in the ledger, shown in percent"""
    short: str = ""

    def shown(self, value: float) -> float:
        """The value in the unit of the label."""
        return 100 * value if self.percent else value

    def number(self, value: float) -> str:
        """The value as text without its unit."""
        if self.percent:
            return f"{100 * value:.2f}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

    def text(self, value: float | None) -> str:
        """The value as text, with `%` where it is a share; a dash where there is none."""
        if value is None:
            return "-"
        return self.number(value) + (" %" if self.percent else "")

    @property
    def better(self) -> str:
        """Which direction is better, in words."""
        return "higher is better" if self.maximize else "lower is better"


class Layer(NamedTuple):
    """A layer that a plan assigns a level to."""

    name: str
    block: str
    stage: str


@dataclass(frozen=True)
class TrialView:
    """One trial of the ledger."""

    id: str
    number: int
    state: TrialState
    method: str
    plan: str
    network: str
    """key of its layers in `SearchView.networks`"""
    seed: int
    params: Mapping[str, Any]
    """what was sampled for it besides the plan, by full names"""
    values: Mapping[str, float]
    """costs and, of a trial that ended, metrics, by name"""
    epochs: int
    curve: Sequence[tuple[int, float]] = ()
    """(epoch, quality)"""
    train_curve: Sequence[tuple[int, float]] = ()
    """(epoch, quality on the training part), where the task measures it"""
    rungs: Mapping[float, float] = field(default_factory=dict)
    """quality at the rungs of early stopping or pausing, by fraction of training"""
    stopped_at: float | None = None
    paused_at: float | None = None
    look: str | None = None
    """what a look with inherited weights told, in words"""
    would_stop_at: float | None = None
    """the rung at which a control trial would have been stopped"""
    failure: str | None = None
    message: str | None = None
    started: float | None = None
    ended: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """`params` without the method: short names, values as text"""
    seconds: float | None = None
    """how long it was trained, without pauses; None while it runs"""

    @property
    def summary(self) -> str:
        """Id, method and settings in one line, without the plan."""
        settings = (f"{name}={text}" for name, text in self.settings.items())
        return " ".join([self.id, self.method, *settings])


class HypervolumeStep(NamedTuple):
    """The hypervolume after so many ended trials and seconds (without the pauses between turns), as
    a share of the box between the reference and a perfect network that costs nothing."""

    trials: int
    seconds: float
    share: float


class Budget(NamedTuple):
    """A limit on the cost."""

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
    """one per finished setting, with means over its seeds"""
    labels: Labels
    front: Sequence[str]
    """ids of the trials on the front, cheapest first"""
    objectives: Sequence[Axis]
    objective_values: Mapping[str, Sequence[float]]
    """by trial id of every point, in the order of `objectives`; means over its seeds"""
    quality: Axis
    cost: Axis
    reference: Sequence[float]
    ideal: Sequence[float]
    """the objectives of a perfect network that costs nothing"""
    hypervolume: Sequence[HypervolumeStep]
    budgets: Sequence[Budget]
    networks: Mapping[str, Sequence[Layer]]
    budget_of_trials: int | None
    """None where hours or the gain that is left decide alone"""
    epochs: int
    seconds: float
    rungs: Sequence[float] = ()
    stopping: str | None = None
    """what early stopping did, as a sentence"""
    model_health: str = ""
    """how good the model of the sampler is, in words"""
    outlook: str = ""
    """what the next trials may add to the front, in words"""
    ended_by: str = ""
    """what ended the search before its number of trials, in words"""
    limits: Sequence[str] = ()
    """how many points keep the limits on what is measured, and which miss them by least"""
    failing: Sequence[str] = ()
    """what the trials that failed have in common, in words"""
    yaml: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    commands: Sequence[tuple[str, str]] = ()
    """(command, what it does): those that repeat the search or continue from it"""
    full_flops: float | None = None
    """of the dearest full-precision network, the reference of percentages; None without trials"""
    measured_on: str = ""
    """the machine and conditions of measured latencies"""
    all_methods: Sequence[str] = ()
    """the methods of the whole search, where this view has only some of its trials"""
    finals: Sequence[FinalTraining] = ()
    """its final trainings, in the order in which they ended"""
    tries: Sequence[str] = ()
    """what it would try next, in words"""
    clock: BusyClock = field(default_factory=BusyClock, compare=False)
    """its time, without the pauses between turns"""
    turn: Turn | None = field(default=None, compare=False)
    """what its driver does now; None where none runs"""

    @property
    def title(self) -> str:
        """The title of its figures."""
        return f"{self.name}: {self.dataset}, {self.model}"

    @cached_property
    def point_of(self) -> dict[str, FrontPoint]:
        """Points by the id of their first trial."""
        return {point.trial: point for point in self.points}

    @cached_property
    def by_id(self) -> dict[str, TrialView]:
        """Trials by their id."""
        return {trial.id: trial for trial in self.trials}

    @cached_property
    def on_front(self) -> set[str]:
        """The ids of the trials on the front."""
        return set(self.front)

    @property
    def hypervolume_share(self) -> float:
        """The hypervolume now, as a share of the box."""
        return self.hypervolume[-1].share if self.hypervolume else 0.0

    @property
    def counts(self) -> Counter[str]:
        """How many trials are in each state."""
        return Counter(trial.state for trial in self.trials)

    @property
    def methods(self) -> Sequence[str]:
        """All methods; their order fixes their colours."""
        return self.all_methods or sorted({trial.method for trial in self.trials})

    @property
    def front_objectives(self) -> list[Objective]:
        """The objectives as `search.front` takes them."""
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

    def curve_of(self, trial: TrialView) -> Sequence[tuple[int, float]]:
        """The learning curve of a trial, as far as it is known."""
        running = self.turn.running.get(trial.id) if self.turn is not None else None
        return trial.curve if running is None or trial.curve else running.curve

    def layers_of(self, trial: TrialView) -> Sequence[Layer]:
        """The layers of a trial; numbered ones where its network is unknown."""
        known = self.networks.get(trial.network, ())
        if len(known) == len(trial.plan):
            return known
        return [Layer(f"layer {i + 1}", f"layer {i + 1}", "") for i in range(len(trial.plan))]
