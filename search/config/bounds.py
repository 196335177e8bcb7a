"""The cheapest and dearest points of a space, and what follows from them: limits that no point
satisfies, the share of points within the limits, the reference point of hypervolumes."""

from __future__ import annotations

import itertools
import random

from bitfront.search.config.errors import KeyProblem
from bitfront.search.config.known import COSTS
from bitfront.search.config.schema import SearchConfig
from bitfront.spaces.space import (
    FixedPlan,
    FreePlan,
    OnlyPlan,
    PlanSpace,
    SelectedPlan,
    Space,
    ends,
)
from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Float, Value
from bitfront.trainables.selectors import SELECTORS
from bitfront.trainables.task import Task, TrialSpec

# Parameters of methods that change what a network costs.
PRICED = ("scale", "rate", "p", "init", "layers")
# Steps between the ends of an exponent at which costs are computed.
EXPONENTS = 20
# So many networks of a space can be in a device table.
MOST_NETWORKS = 64
# The dearest full-precision network itself should count, so the reference point lies beyond it.
REFERENCE_FACTOR = 1.1


def extreme_specs(space: Space) -> list[TrialSpec]:
    """Points among which every cost takes its least and its greatest value over the space: a
    cost never grows when a layer changes to a lower level, so uniform plans bound all plans."""
    specs = []
    for task in space.extreme_tasks():
        table = task_cost_table(task)
        for method in map(str, space.method.values):
            for plan in _extreme_plans(space, method, table):
                for params in _priced_params(space, method):
                    specs.append(TrialSpec(task=task, method=method, params=params, plan=plan))
    return specs


def _priced_params(space: Space, method: str) -> list[dict[str, Value]]:
    """The method's parameters that change costs, at the ends of their domains. Between the ends of
    an exponent the cost is not monotonic, so that some points in between are taken as well."""
    domains = space.method_params.get(method, {})
    priced = {name: ends(domains[name]) for name in PRICED if name in domains}
    exponent = domains.get("p")
    if isinstance(exponent, Float):
        low, span = exponent.low, exponent.high - exponent.low
        priced["p"] = [low + span * i / EXPONENTS for i in range(EXPONENTS + 1)]
    return [dict(zip(priced, each, strict=True)) for each in itertools.product(*priced.values())]


def _extreme_plans(space: Space, method: str, table: CostTable) -> list[str]:
    """Plans among which every cost is least and greatest, for one method and network."""
    n = len(table.plan_layers)
    if METHODS.get(method).levels == "F":
        return ["F" * n]
    if isinstance(space.plan, FreePlan):
        return [level * n for level in space.plan.levels]
    if isinstance(space.plan, SelectedPlan):
        return _selected_extremes(space.plan, table)
    if isinstance(space.plan, OnlyPlan):
        parts = space.plan.names(table)
        return [space.plan.make(table, lambda _name, _d, p=p: p, 0) for p in parts]  # type: ignore[misc]
    assert isinstance(space.plan, FixedPlan)
    return [space.plan.make(table, lambda _name, _d: None, 0)]


def _selected_extremes(plan: SelectedPlan, table: CostTable) -> list[str]:
    """Plans of every selector at the extreme budgets. A selector that has not run yet could choose
    any layers, so that only uniform plans bound its own."""
    n = len(table.plan_layers)
    plans = []
    for name in plan.using.names:
        if SELECTORS.get(name).trained and name not in plan.selections:
            return ["F" * n, plan.using.level * n]
        for budget in ends(plan.budget):
            for seed in ends(plan.seeds) if plan.seeds is not None else [0]:
                made = plan.using.plan(
                    name, plan.selections, table, float(budget), plan.rule, int(seed)
                )
                plans.append(made)
    return plans


def cost_bounds(space: Space) -> dict[str, tuple[float, float]]:
    """Least and greatest reachable value of every cost."""
    totals = [space.costs(spec) for spec in extreme_specs(space)]
    counted = [cost for cost in COSTS if cost in totals[0]]
    found = {cost: (min(t[cost] for t in totals), max(t[cost] for t in totals)) for cost in counted}
    return found | further_bounds(space)


def further_bounds(space: Space) -> dict[str, tuple[float, float]]:
    """Bounds of the costs of the user's own and of a device, which may grow when a layer changes to
    a lower level: every layer at its cheapest, and every layer at its dearest."""
    letters = {"F", *_letters(space.plan)}
    found: dict[str, tuple[float, float]] = {}
    for cost in space.further_costs():
        lows, highs = [], []
        for task in _networks(space):
            table = task_cost_table(task)
            n = len(table.plan_layers)
            levels = [table.priced(cost, letter * n) for letter in sorted(letters)]
            rest = 0.0 if cost.of_rest is None else cost.of_rest(table)
            lows.append(rest + sum(map(min, zip(*levels, strict=True))))
            highs.append(rest + sum(map(max, zip(*levels, strict=True))))
        found[cost.name] = (min(lows), max(highs))
    return found


def _networks(space: Space) -> list[Task]:
    """The networks among which costs of a device are least and greatest: all of them, since a wider
    one may be faster."""
    return space.extreme_tasks() if space.device is None else space.networks(MOST_NETWORKS) or []


def _letters(plan: PlanSpace) -> str:
    if isinstance(plan, FixedPlan):
        return plan.letters
    if isinstance(plan, FreePlan):
        return "".join(plan.levels)
    return plan.using.level if isinstance(plan, SelectedPlan) else plan.level


def check_limits(config: SearchConfig, space: Space) -> None:
    """Raise for a limit that no point of the space can satisfy."""
    bounds = cost_bounds(space)
    for cost, limit in config.cost_limits.items():
        if cost not in bounds:  # of a device table that is not made yet
            continue
        low, high = bounds[cost]
        if limit.max is not None and low > limit.max:
            raise KeyProblem(
                ("limits", cost),
                f"no point of the space has {cost} <= {limit.max:g}; "
                f"the cheapest reachable is {_number(low)}",
            )
        if limit.min is not None and high < limit.min:
            raise KeyProblem(
                ("limits", cost),
                f"no point of the space has {cost} >= {limit.min:g}; "
                f"the greatest reachable is {_number(high)}",
            )


def violations(config: SearchConfig, costs: dict[str, float]) -> dict[str, float]:
    """How far a point is outside each limit on a cost that it violates, by the cost."""
    found = {name: limit.violation(costs[name]) for name, limit in config.cost_limits.items()}
    return {name: amount for name, amount in found.items() if amount > 0}


def feasible_share(config: SearchConfig, space: Space, draws: int = 400) -> float:
    """The share of random points that satisfy all limits on costs."""
    if not config.cost_limits:
        return 1.0
    rng = random.Random(0)
    points = (space.random_point(rng) for _ in range(draws))
    return sum(not violations(config, space.costs(spec)) for spec in points) / draws


def reference_point(config: SearchConfig, space: Space) -> list[float]:
    """The reference point of hypervolumes, fixed before the first trial: for a metric its chance
    level, for a cost 1.1 times that of the dearest full-precision network."""
    info, kind = DATASETS.get(config.task.dataset), config.kind
    metrics = [metric.name for metric in kind.metrics]
    full, further = space.full_costs(), further_bounds(space)
    point = []
    for name in config.objectives:
        if name in metrics:
            point.append(kind.chance(name, info))
        else:
            dearest = max([costs[name] for costs in full] + [further.get(name, (0.0, 0.0))[1]])
            point.append(REFERENCE_FACTOR * dearest)
    return point


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
