"""A space: what may change between trials, and how a point of it becomes a trial's spec.

A space is define-by-run: `walk` calls `draw(name, domain)` for each parameter that applies, in
order. Any sampler, a random generator or a recorded point can be that function."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.costs import COSTS
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Choice, Domain, Int, Value
from bitfront.trainables.plan import check_plan, expand, with_real_inputs
from bitfront.trainables.selectors import SELECTORS, Selection, SelectionSpec
from bitfront.trainables.settings import TREATED_INPUTS
from bitfront.trainables.task import Task, TrialSpec, with_overrides

Draw = Callable[[str, Domain], Any]
OWN_SHARE = "flops_own_pct"


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
class Selecting:
    """The selectors of a space and their parameters. Trained selectors use a network that is
    trained on the task with the keys of `trained_on` replaced, for example another dataset."""

    names: tuple[str, ...]
    params: Mapping[str, Value] = field(default_factory=dict)
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    level: str = "B"

    def params_of(self, name: str) -> dict[str, Value]:
        declared = SELECTORS.get(name).params
        return {key: value for key, value in self.params.items() if key in declared}

    def task(self, task: Task) -> Task:
        if not self.trained_on:
            return task
        changed = with_overrides(task, dict(self.trained_on))
        if DATASETS.runs_code(changed.dataset):  # looking at a search must run none
            raise UserError(f"{changed.dataset}: a selector is trained on data that have a name")
        dataset = DATASETS.settle(changed.dataset, changed.data_dir)
        return changed.model_copy(update={"dataset": dataset})

    def specs(self, space: Space, seed: int) -> dict[str, SelectionSpec]:
        """The specs of the selections that need a trained network, by name of the selector; empty
        where no method of the space has binary layers."""
        planned = [str(m) for m in space.method.values if METHODS.get(str(m)).levels != "F"]
        if not planned:
            return {}
        method = planned[0]
        domains = space.method_params.get(method, {})
        return {
            name: SelectionSpec(
                selector=name,
                params=self.params_of(name),
                task=self.task(space.task),
                method=method,
                method_params={k: ends(d)[0] for k, d in domains.items() if d.size == 1},
                level=self.level,
                seed=seed,
            )
            for name in self.names
            if SELECTORS.get(name).trained
        }

    def plan(
        self,
        name: str,
        selections: Mapping[str, Selection],
        table: CostTable,
        budget: float,
        rule: str,
        seed: int,
    ) -> str:
        """The plan of a selector for a budget. In place of a trained selector that has not run yet,
        for example in a preview, the selector `first` is used: the costs of its plan are nearly the
        same."""
        if name in selections:
            return selections[name].plan(table, budget, rule, self.level, seed)
        waits = SELECTORS.get(name).trained
        made = SELECTORS.get("first" if waits else name)({} if waits else self.params_of(name))
        return made.plan(table, made.order(table, seed), budget, rule, self.level, seed)


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

    def make(self, table: CostTable, draw: Draw, seed: int) -> str:
        name = str(_drawn(draw, "plan.selector", Choice(self.using.names)))
        budget = float(_drawn(draw, "plan.budget", self.budget))
        if self.seeds is not None:
            seed = int(_drawn(draw, "plan.seed", self.seeds))
        return self.using.plan(name, self.selections, table, budget, self.rule, seed)

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
    start_plans: tuple[str, ...] = ()
    own_costs: tuple[str, ...] = ()
    """references to costs of the user's own"""

    def selecting(self) -> list[Selecting]:
        """The selectors that run before the first trial."""
        plan = [self.plan.using] if isinstance(self.plan, SelectedPlan) else []
        return plan + ([self.start_from.using] if self.start_from is not None else [])

    def settled(self, found: Callable[[SelectionSpec], Selection], seed: int) -> Space:
        """The space with the selections that `found` returns for the specs of its trained
        selectors, and with the plans that the search begins with."""

        def done(using: Selecting) -> dict[str, Selection]:
            return {name: found(spec) for name, spec in using.specs(self, seed).items()}

        plan, start = self.plan, self.start_from
        if isinstance(plan, SelectedPlan):
            plan = replace(plan, selections=done(plan.using))
        plans: list[str] = []
        if start is not None:
            selections, table = done(start.using), task_cost_table(self.task)
            plans = [
                start.using.plan(name, selections, table, budget, start.rule, seed)
                for name in start.using.names
                for budget in start.budgets
            ]
        return replace(self, plan=plan, start_plans=tuple(dict.fromkeys(plans)))

    def walk(self, draw: Draw, seed: int = 0) -> TrialSpec:
        """The spec of the trial at the point whose values `draw` returns."""
        method = str(_drawn(draw, "method", self.method))
        changed = {name: _drawn(draw, name, domain) for name, domain in self.overrides.items()}
        task = with_overrides(self.task, changed) if changed else self.task
        params: dict[str, Value] = {
            name: _drawn(draw, f"{method}.{name}", domain)
            for name, domain in self.method_params.get(method, {}).items()
        }
        table = task_cost_table(task)
        if METHODS.get(method).levels == "F":
            plan = "F" * len(table.plan_layers)
        else:
            plan = self.plan.make(table, draw, seed)
        check_plan(plan, table.plan_layers, METHODS.get(method).levels)
        return TrialSpec(task=task, method=method, params=params, plan=plan, seed=seed)

    def costs(self, spec: TrialSpec) -> dict[str, float]:
        """Every cost of a point of this space, by name. `flops_pct` is in percent of the dearest
        network of the space, so that points are comparable, `flops_own_pct` in percent of the
        point's own network, both in full precision."""
        return in_percent_of(self.full_flops, costs_of(spec)) | own_costs_of(spec, self.own_costs)

    def full_costs(self) -> list[dict[str, float]]:
        """The costs in full precision of every task of `extreme_tasks`."""
        return [self.costs(spec) for spec in self._full_specs()]

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

    def pretraining_lengths(self) -> list[int]:
        """Epochs of the full-precision pretraining that trials may start from, shortest first;
        empty where all trials train end-to-end."""
        fixed = Choice((self.task.pretrain.epochs,))
        lengths = ends(self.overrides.get("pretrain.epochs", fixed))
        return sorted(int(n) for n in lengths if int(n) > 0)

    def random_point(self, rng: random.Random, seed: int = 0) -> TrialSpec:
        return self.walk(lambda _name, domain: random_value(domain, rng), seed)


def in_percent_of(full_flops: float, costs: dict[str, float]) -> dict[str, float]:
    """The costs with `flops_pct` replaced by the percentage of `full_flops`; the percentage of the
    network's own flops in full precision becomes `flops_own_pct`."""
    share = 100.0 * costs["flops"] / full_flops if full_flops else 100.0
    return {**costs, "flops_pct": share, OWN_SHARE: costs["flops_pct"]}


def costs_of(spec: TrialSpec) -> dict[str, float]:
    """Every cost of a trial, by name; `flops_pct` is in percent of its own network in full
    precision."""
    table = task_cost_table(spec.task)
    method = METHODS.get(spec.method)(dict(spec.params))
    kept = method.kept(table.sizes(spec.plan))
    stored = method.shifts_inputs + TREATED_INPUTS.get(spec.task.settled_activations, 0)
    return table.costs(spec.plan, method.scale, stored, kept)


def own_costs_of(spec: TrialSpec, own: Sequence[str]) -> dict[str, float]:
    """The costs of the user's own of a trial, by name."""
    if not own:
        return {}
    table = task_cost_table(spec.task)
    method = METHODS.get(spec.method)(dict(spec.params))
    parts = (spec.plan, method.scale, method.shifts_inputs, method.kept(table.sizes(spec.plan)))
    costs = [COSTS.get(reference) for reference in own]
    return {cost.name: sum(table.priced(cost, *parts)) for cost in costs}


def ends(domain: Domain) -> list[Value]:
    """All values of a choice, the lowest and the highest of a range."""
    if isinstance(domain, Choice):
        return list(domain.values)
    return [domain.low, domain.high] if domain.low != domain.high else [domain.low]


def random_value(domain: Domain, rng: random.Random) -> Value:
    """A value drawn uniformly, on the scale of the domain."""
    if isinstance(domain, Choice):
        return rng.choice(domain.values)
    if isinstance(domain, Int) and not domain.log:
        return rng.randrange(domain.low, domain.high + 1, domain.step)
    if domain.log:
        value = math.exp(rng.uniform(math.log(domain.low), math.log(domain.high)))
    else:
        value = rng.uniform(domain.low, domain.high)
    value = min(max(value, domain.low), domain.high)
    return round(value) if isinstance(domain, Int) else value


def _drawn(draw: Draw, name: str, domain: Domain) -> Any:
    """The value that `draw` returns; for a domain of one value that value, without a call."""
    if domain.size == 1:
        return ends(domain)[0]
    return draw(name, domain)


def middle(domain: Domain) -> Any:
    """The first value of a choice, or the middle of a range on its scale."""
    if isinstance(domain, Choice):
        return domain.values[0]
    low, high = domain.low, domain.high
    value = math.sqrt(low * high) if domain.log else (low + high) / 2
    if isinstance(domain, Int):
        steps = round((value - domain.low) / domain.step)
        return domain.low + steps * domain.step
    return value


def recorded(space: Space, draw: Draw) -> dict[str, Any]:
    """The parameters that a walk of the space draws, by name."""
    drawn: dict[str, Any] = {}

    def record(name: str, domain: Domain) -> Any:
        drawn[name] = draw(name, domain)
        return drawn[name]

    space.walk(record)
    return drawn
