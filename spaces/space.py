"""A space: what may change between trials, and how a point of it becomes a trial's spec.

A space is define-by-run: `walk` calls `draw(name, domain)` for each parameter that applies, in
order. Any sampler, a random generator or a recorded point can be that function."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bitfront.spaces.costs import KnownCosts, costs_of
from bitfront.spaces.drawing import Draw, drawn_value, ends, every_value, middle, random_value
from bitfront.spaces.selecting import Selecting
from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.costs import COSTS, Cost, bound
from bitfront.trainables.costs.devices import DeviceTable
from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Choice, Domain, Prior, Value
from bitfront.trainables.plan import check_plan, expand, with_real_inputs
from bitfront.trainables.selectors import SELECTORS, Selection, SelectionSpec
from bitfront.trainables.task import Task, TrialSpec, with_overrides

__all__ = [
    "Draw",
    "FixedPlan",
    "FreePlan",
    "OnlyPlan",
    "PlanSpace",
    "SelectedPlan",
    "Selecting",
    "Space",
    "StartFrom",
    "ends",
    "middle",
    "random_value",
    "recorded",
]


@dataclass(frozen=True)
class FixedPlan:
    """The same plan for every trial: letters, or one letter for all layers."""

    letters: str

    def make(self, table: CostTable, draw: Draw, seed: int) -> str:
        n = len(table.plan_layers)
        if len(self.letters) != 1:
            return self.letters
        return with_real_inputs(self.letters * n, table.plan_layers)

    def size(self, table: CostTable) -> float:
        return 1


@dataclass(frozen=True)
class FreePlan:
    """A level drawn for every layer, block or stage, or one for the whole model."""

    per: str
    levels: tuple[str, ...]
    priors: Mapping[str, Prior] = field(default_factory=dict)
    """the levels that parts of the network are believed to have on the front, by their names"""

    def groups(self, table: CostTable) -> list[str]:
        if self.per == "layer":
            return [layer.name for layer in table.plan_layers]
        if self.per == "model":
            return ["all"] * len(table.plan_layers)
        return [getattr(layer, self.per) for layer in table.plan_layers]

    def make(self, table: CostTable, draw: Draw, seed: int) -> str:
        groups = self.groups(table)
        domain = Choice(self.levels)
        letters = [draw(f"plan.{group}", domain) for group in dict.fromkeys(groups)]
        plan = expand(groups, letters)
        return plan if self.per == "layer" else with_real_inputs(plan, table.plan_layers)

    def size(self, table: CostTable) -> float:
        return float(len(self.levels)) ** len(dict.fromkeys(self.groups(table)))


@dataclass(frozen=True)
class OnlyPlan:
    """Plans in which one layer, block or stage, which is drawn, is binary and all others are F."""

    per: str
    level: str

    def names(self, table: CostTable) -> list[str]:
        return list(dict.fromkeys(self._groups(table)))

    def _groups(self, table: CostTable) -> list[str]:
        return FreePlan(self.per, (self.level,)).groups(table)

    def make(self, table: CostTable, draw: Draw, seed: int) -> str:
        chosen = draw("plan.only", Choice(tuple(self.names(table))))
        return "".join(self.level if group == chosen else "F" for group in self._groups(table))

    def chosen(self, table: CostTable, plan: str) -> str:
        """The name of the layer, block or stage that is binary in a plan that `make` returned."""
        binary = (g for g, level in zip(self._groups(table), plan, strict=True) if level != "F")
        return next(binary)

    def size(self, table: CostTable) -> float:
        return len(self.names(table))


@dataclass(frozen=True)
class SelectedPlan:
    """Plans made by a selector for a drawn budget. Budgets are in percent of the flops of the
    trial's own network in full precision, as in MixBin, not of the dearest network of the
    search."""

    using: Selecting
    budget: Domain
    rule: str = "at_least"
    seeds: Choice | None = None
    selections: Mapping[str, Selection] = field(default_factory=dict)

    def chosen(self, draw: Draw, seed: int) -> tuple[str, float, int]:
        """(selector, budget, seed of the draw)."""
        name = str(drawn_value(draw, "plan.selector", Choice(self.using.names)))
        budget = float(drawn_value(draw, "plan.budget", self.budget))
        if self.seeds is not None:
            seed = int(drawn_value(draw, "plan.seed", self.seeds))
        return name, budget, seed

    def make(self, table: CostTable, draw: Draw, seed: int) -> str:
        name, budget, seed = self.chosen(draw, seed)
        return self.using.plan(name, self.selections, table, budget, self.rule, seed)

    def trial(
        self, task: Task, method: str, params: dict[str, Value], draw: Draw, seed: int
    ) -> TrialSpec:
        """The trial of a selector's choice: of its plan by this method, or by a method of its
        own."""
        name, budget, draw_seed = self.chosen(draw, seed)
        own = self.using.training(name, self.selections, task, budget, seed)
        method, params = (method, params) if own is None else own
        table = task_cost_table(task)
        plan = self.using.plan(name, self.selections, table, budget, self.rule, draw_seed)
        return TrialSpec(task=task, method=method, params=params, plan=plan, seed=seed)

    def size(self, table: CostTable) -> float:
        seeds = 1 if self.seeds is None else self.seeds.size
        each = min(self.budget.size, len(table.plan_layers) + 1)
        return len(self.using.names) * seeds * each


@dataclass(frozen=True)
class StartFrom:
    """The plans of selectors at several budgets, with which a search over free plans begins."""

    using: Selecting
    budgets: tuple[float, ...]
    rule: str = "at_least"
    selections: Mapping[str, Selection] = field(default_factory=dict)

    def plan(self, name: str, table: CostTable, budget: float, seed: int) -> str:
        return self.using.plan(name, self.selections, table, budget, self.rule, seed)


@dataclass(frozen=True)
class Advice:
    """The selectors whose orders of layers the model of a search begins with."""

    using: Selecting
    selections: Mapping[str, Selection] = field(default_factory=dict)

    def orders(self, table: CostTable, seed: int) -> list[Sequence[int]]:
        """The layers that each selector makes binary first, first; of those that have run."""
        found = [selection.order for selection in self.selections.values()]
        fixed = [name for name in self.using.names if not SELECTORS.get(name).trained]
        made = [SELECTORS.get(name)(self.using.params_of(name)) for name in fixed]
        return [*found, *(selector.order(table, seed) for selector in made)]


PlanSpace = FixedPlan | FreePlan | OnlyPlan | SelectedPlan


@dataclass(frozen=True)
class Space:
    """The task, and the domains from which each trial draws its method, its plan, keys of the task
    (`overrides`) and parameters of the method."""

    task: Task
    method: Choice
    plan: PlanSpace
    overrides: Mapping[str, Domain] = field(default_factory=dict)
    method_params: Mapping[str, Mapping[str, Domain]] = field(default_factory=dict)
    start_from: StartFrom | None = None
    advice: Advice | None = None
    start_plans: tuple[str, ...] = ()
    own_costs: tuple[str, ...] = ()
    """references to costs of the user's own"""
    device: DeviceTable | None = None
    """the times that costs which were measured are made of"""

    def priors(self) -> dict[str, Prior]:
        """What is believed best, by the keys of a YAML."""
        domains: dict[str, Domain] = {"method": self.method, **self.overrides}
        for method, params in self.method_params.items():
            domains |= {f"{method}.{name}": domain for name, domain in params.items()}
        found = {name: domain.prior for name, domain in domains.items() if domain.prior is not None}
        parts = self.plan.priors if isinstance(self.plan, FreePlan) else {}
        return found | {f"plan.{part}": prior for part, prior in parts.items()}

    def selecting(self) -> list[Selecting]:
        """The selectors that run before the first trial."""
        plan = [self.plan.using] if isinstance(self.plan, SelectedPlan) else []
        others = [each.using for each in (self.start_from, self.advice) if each is not None]
        return plan + others

    def waiting(self) -> set[str]:
        """The names of the selectors that must train a network and have not."""
        parts = [p for p in (self.plan, self.start_from) if isinstance(p, SelectedPlan | StartFrom)]
        return {name for part in parts for name in part.using.waiting(part.selections)}

    def settled(self, found: Callable[[SelectionSpec], Selection | None], seed: int) -> Space:
        """The space with the selections that `found` returns for the specs of its trained
        selectors, and with the plans that the search begins with: none while `found` has None for a
        selector that makes one of them."""

        def done(using: Selecting) -> dict[str, Selection]:
            made = {name: found(spec) for name, spec in using.specs(self, seed).items()}
            return {name: selection for name, selection in made.items() if selection is not None}

        plan, start, plans = self.plan, self.start_from, list[str]()
        if isinstance(plan, SelectedPlan):
            plan = replace(plan, selections=done(plan.using))
        if start is not None:
            start, table = replace(start, selections=done(start.using)), task_cost_table(self.task)
            whole = start.selections.keys() == start.using.specs(self, seed).keys()
            made = itertools.product(start.using.names, start.budgets) if whole else ()
            plans = [start.plan(name, table, budget, seed) for name, budget in made]
        advice = self.advice
        if advice is not None:
            advice = replace(advice, selections=done(advice.using))
        begun = tuple(dict.fromkeys(plans))
        return replace(self, plan=plan, start_from=start, start_plans=begun, advice=advice)

    def walk(self, draw: Draw, seed: int = 0) -> TrialSpec:
        """The spec of the trial at the point whose values `draw` returns."""
        method = str(drawn_value(draw, "method", self.method))
        changed = {name: drawn_value(draw, name, domain) for name, domain in self.overrides.items()}
        task = with_overrides(self.task, changed) if changed else self.task
        params: dict[str, Value] = {
            name: drawn_value(draw, f"{method}.{name}", domain)
            for name, domain in self.method_params.get(method, {}).items()
        }
        table = task_cost_table(task)
        real = METHODS.get(method).levels == "F"
        if isinstance(self.plan, SelectedPlan) and not real:
            spec = self.plan.trial(task, method, params, draw, seed)
        else:
            plan = "F" * len(table.plan_layers) if real else self.plan.make(table, draw, seed)
            spec = TrialSpec(task=task, method=method, params=params, plan=plan, seed=seed)
        check_plan(spec.plan, table.plan_layers, METHODS.get(spec.method).levels)
        return spec

    def costs(self, spec: TrialSpec) -> dict[str, float]:
        """Every cost of a point of this space, by name. `flops_pct` is in percent of the dearest
        network of the space, so that points are comparable, `flops_own_pct` in percent of the
        point's own network, both in full precision."""
        return self._known_costs.of(spec)

    @cached_property
    def _known_costs(self) -> KnownCosts:
        return KnownCosts(self.full_flops, self.further_costs())

    def further_costs(self) -> list[Cost]:
        """The costs that are not counted of every network: the user's own, and those of the
        device."""
        return [*map(COSTS.get, self.own_costs), *bound(self.device)]

    def full_costs(self) -> list[dict[str, float]]:
        """The costs in full precision of every task of `extreme_tasks`."""
        return list(map(self.costs, self._full_specs()))

    @cached_property
    def full_flops(self) -> float:
        """The flops that are 100 %: those of the dearest network of the space in full precision."""
        return max(costs_of(spec)["flops"] for spec in self._full_specs())

    def _full_specs(self) -> list[TrialSpec]:
        tasks = self.extreme_tasks()
        layers = [len(task_cost_table(task).plan_layers) for task in tasks]
        return [TrialSpec(task=t, plan="F" * n) for t, n in zip(tasks, layers, strict=True)]

    @property
    def is_conditional(self) -> bool:
        """Whether some drawn values decide which other parameters are drawn."""
        methods = {str(m) for m in self.method.values}
        planless = any(METHODS.get(m).levels == "F" for m in methods)
        several = len(methods) > 1 and (planless or bool(set(self.method_params) & methods))
        return several or any(name.startswith("model.") for name in self.overrides)

    def size(self) -> float:
        """How many points there are (an upper bound where the model itself is drawn)."""
        shared = 1.0
        for domain in self.overrides.values():
            shared *= domain.size
        table = max(
            (task_cost_table(task) for task in self.extreme_tasks()),
            key=lambda t: len(t.plan_layers),
        )
        total = 0.0
        for method in self.method.values:
            points = 1.0
            for domain in self.method_params.get(str(method), {}).values():
                points *= domain.size
            if METHODS.get(str(method)).levels != "F":
                points *= self.plan.size(table)
            total += points
        return shared * total

    def extreme_tasks(self) -> list[Task]:
        """The tasks at all combinations of the ends of the model parameters that are drawn, and of
        the activations. The extreme costs are among theirs, since costs grow with each parameter,
        such as width or depth."""
        tasks = [self.task]
        for name, domain in self.overrides.items():
            if name.startswith("model.") or name == "activations":
                tasks = [with_overrides(t, {name: v}) for t in tasks for v in ends(domain)]
        return tasks

    def networks(self, most: int) -> list[Task] | None:
        """A task of every network that trials may have; None where there are more than `most`."""
        tasks = [self.task]
        for name, domain in self.overrides.items():
            if name.startswith("model.") or name == "activations":
                if len(tasks) * domain.size > most:
                    return None
                values = every_value(domain)
                tasks = [with_overrides(t, {name: v}) for t in tasks for v in values]
        return tasks

    def pretraining_lengths(self) -> list[int]:
        """Epochs of the full-precision pretraining that trials may start from, shortest first;
        empty where all trials train end-to-end."""
        fixed = Choice((self.task.pretrain.epochs,))
        lengths = ends(self.overrides.get("pretrain.epochs", fixed))
        return sorted(int(n) for n in lengths if int(n) > 0)

    def random_point(self, rng: random.Random, seed: int = 0) -> TrialSpec:
        return self.walk(lambda _name, domain: random_value(domain, rng), seed)


def recorded(space: Space, draw: Draw) -> dict[str, Any]:
    """The parameters that a walk of the space draws, by name."""
    drawn: dict[str, Any] = {}

    def record(name: str, domain: Domain) -> Any:
        drawn[name] = draw(name, domain)
        return drawn[name]

    space.walk(record)
    return drawn
