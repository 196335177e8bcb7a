"""Every point of a small space in a fixed order: for searches that try them all, and to count
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bitfront.spaces.drawing import every_value
from bitfront.spaces.space import SelectedPlan, Space, ends
from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.parameters import Choice, Domain, Float
from bitfront.trainables.task import TrialSpec

# Budgets closer to each other than this, in percent of the flops, are not distinguished.
SAME_BUDGET = 1e-3

Point = tuple[dict[str, Any], TrialSpec]
"""(drawn values by name, spec of the trial)."""


def every_point(space: Space, most: int, seed: int = 0) -> list[Point] | None:
    """All points in a fixed order; None where there are more than `most`, or infinitely many.
    Several points may be the same trial, for example where a selector makes one plan for two
    budgets."""
    if space.size() > most:
        return None
    listable = _with_listed_budgets(space, seed)
    if listable is None:
        return None
    found: list[Point] = []
    for point in _walks(listable, seed):
        if len(found) == most:
            return None
        found.append(point)
    return found


def _walks(space: Space, seed: int) -> Iterator[Point]:
    """The points of the space, by one walk for every combination of values. The value that is drawn
    last changes first, since later draws depend on earlier ones."""
    path: list[int] = []
    while True:
        counts: list[int] = []
        drawn: dict[str, Any] = {}

        def draw(
            name: str,
            domain: Domain,
            path: list[int] = path,
            counts: list[int] = counts,
            drawn: dict[str, Any] = drawn,
        ) -> Any:
            values = every_value(domain)
            place = len(counts)
            if place == len(path):
                path.append(0)
            counts.append(len(values))
            drawn[name] = values[path[place]]
            return drawn[name]

        spec = space.walk(draw, seed)
        yield drawn, spec
        while path and path[-1] + 1 == counts[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


def _with_listed_budgets(space: Space, seed: int) -> Space | None:
    """The space with its range of budgets replaced by a list: one budget per plan that its
    selectors make. None where another real number is drawn from a range, or where parameters of the
    network are drawn, since the list would differ between networks."""
    domains = [*space.overrides.values()]
    domains += [d for each in space.method_params.values() for d in each.values()]
    if any(isinstance(d, Float) and d.size > 1 for d in domains):
        return None
    plan = space.plan
    if not isinstance(plan, SelectedPlan) or not isinstance(plan.budget, Float):
        return space
    if any(name.startswith("model.") for name in space.overrides):
        return None
    table = task_cost_table(space.task)
    budgets: set[float] = set()
    for name in plan.using.names:
        for each in ends(plan.seeds) if plan.seeds is not None else [seed]:
            budgets.update(_budgets(plan, name, int(each), table))
    return replace(space, plan=replace(plan, budget=Choice(tuple(sorted(budgets)))))


def _budgets(plan: SelectedPlan, name: str, seed: int, table: CostTable) -> Iterator[float]:
    """A budget for each plan that a selector makes, by bisection: wherever two budgets have
    different plans, the one in the middle between them is tried."""

    def made(budget: float) -> str:
        return plan.using.plan(name, plan.selections, table, budget, plan.rule, seed)

    low, high = float(ends(plan.budget)[0]), float(ends(plan.budget)[-1])
    open_ = [(low, made(low), high, made(high))]
    yield from (low, high)
    while open_:
        low, lower, high, upper = open_.pop()
        if lower == upper or high - low < SAME_BUDGET:
            continue
        middle = (low + high) / 2
        between = made(middle)
        if between not in (lower, upper):
            yield middle
        open_ += [(low, lower, middle, between), (middle, between, high, upper)]
