"""A setting: values of keys that name one point of a space, as the row of a paper's table does.
Keys are those that a walk of the space draws; what the space fixes may be named too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfront.spaces.space import FreePlan, SelectedPlan, Space, ends, middle
from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.errors import did_you_mean
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.parameters import Choice, Domain, Int, Value
from bitfront.trainables.plan import BINARY_STEPS, with_real_inputs
from bitfront.trainables.task import Task, TrialSpec

# In place of a number: a row is trained with each draw of a random selector in turn.
EACH = "each"
PLAN_SEED = "plan.seed"

Point = tuple[dict[str, Any], TrialSpec]
"""(drawn values by name, spec of the trial)."""


class SettingProblem(Exception):  # noqa: N818 (collected like a KeyProblem)
    """Why a setting is no point of a space; `key` is the one to blame, if it is a single one."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.key = key

    @property
    def text(self) -> str:
        """The message with its key."""
        return self.message if self.key is None else f"{self.key}: {self.message}"


def points(
    space: Space, where: Mapping[str, Value], shared: Mapping[str, Value], seed: int
) -> list[Point]:
    """The point that a setting names; several where `plan.seed: each` asks for all draws of a
    random selector. Of `shared` those keys count that the space draws here and `where` does not
    name. A SettingProblem where a key is left open or has a value that the space does not."""
    plan = space.plan
    given = {**shared, **where}
    if given.get(PLAN_SEED) != EACH or not isinstance(plan, SelectedPlan):
        return [_point(space, where, shared, seed)]
    if plan.seeds is None:
        raise SettingProblem("there are no draws: give `seeds` in space.plan", PLAN_SEED)
    return [_point(space, {**where, PLAN_SEED: int(s)}, shared, seed) for s in ends(plan.seeds)]


def selectors_of(space: Space, where: Mapping[str, Value], shared: Mapping[str, Value]) -> set[str]:
    """The selectors without whose choice the points of a setting are not known."""
    given = {**shared, **where}
    method = given.get("method", space.method.values[0])
    named = given.get("plan.selector")
    if named is not None:
        return {str(named)}
    if not isinstance(space.plan, SelectedPlan) or METHODS.get(str(method)).levels == "F":
        return set()
    # All layers have one letter whatever their order is.
    letters = str(given.get("plan", given.get("plan.all", "")))
    return set() if len(set(letters)) == 1 else set(space.plan.using.names)


def _point(
    space: Space, where: Mapping[str, Value], shared: Mapping[str, Value], seed: int
) -> Point:
    given = {**shared, **where}
    given |= _levels(space, given, seed) | _selected(space, given, seed)
    drawn: dict[str, Any] = {}
    left_open: list[str] = []

    def draw(name: str, domain: Domain) -> Any:
        if name not in given:
            left_open.append(name)
            return middle(domain)
        drawn[name] = _of_domain(name, domain, given[name])
        return drawn[name]

    spec = space.walk(draw, seed)
    for key, value in where.items():
        if key not in drawn:
            _check_fixed(space, spec, key, value)
    if left_open:
        raise SettingProblem(f"leaves {described(space, left_open)} open")
    return drawn, spec


def described(space: Space, names: list[str]) -> str:
    """The names of drawn parameters, those of a free plan as one."""
    free = isinstance(space.plan, FreePlan) and space.plan.per != "model"
    short = ["plan" if free and name.startswith("plan.") else name for name in names]
    return ", ".join(dict.fromkeys(short))


def _of_domain(name: str, domain: Domain, value: Value) -> Value:
    """The value as the domain has it: 80 for 80.0."""
    if not domain.contains(value):
        raise SettingProblem(f"{value} is not in the space: {domain.describe()}", name)
    if isinstance(domain, Choice):
        return next(v for v in domain.values if Choice((v,)).contains(value))
    return int(value) if isinstance(domain, Int) else float(value)


# --- plans ----------------------------------------------------------------------------------------


def _levels(space: Space, given: Mapping[str, Value], seed: int) -> dict[str, str]:
    """The level of every part of a free plan, where the setting names a whole plan: by its letters,
    by one letter, or as one of those that the search starts from."""
    plan = space.plan
    named = {"plan", "plan.selector"} | ({"plan.all"} if _per(space) != "model" else set())
    if not isinstance(plan, FreePlan) or not named & set(given):
        return {}
    table = task_cost_table(_task(space, given))
    letters = _letters(space, table, given, seed)
    if len(letters) == 1:
        return {f"plan.{group}": letters for group in plan.groups(table)}
    if len(letters) != len(table.plan_layers):
        message = f"{len(letters)} letters for {len(table.plan_layers)} layers"
        raise SettingProblem(message, "plan")
    found: dict[str, str] = {}
    for group, letter in zip(plan.groups(table), letters, strict=True):
        # A part whose first layer stays real has the letter of the others.
        known = found.setdefault(f"plan.{group}", letter)
        if BINARY_STEPS[letter] > BINARY_STEPS[known]:
            found[f"plan.{group}"] = letter
    return found


def _selected(space: Space, given: Mapping[str, Value], seed: int) -> dict[str, Value]:
    """A selector and a budget for which the selector makes the plan that the setting names, such as
    F for all layers; whichever it is, the trial is the same."""
    plan = space.plan
    if not isinstance(plan, SelectedPlan) or "plan.selector" in given or "plan.budget" in given:
        return {}
    letters = given.get("plan", given.get("plan.all"))
    if letters is None:
        return {}
    task = _task(space, given)
    table = task_cost_table(task)
    draw = seed if plan.seeds is None else int(ends(plan.seeds)[0])
    waiting = plan.using.waiting(plan.selections)
    for name in sorted(plan.using.names, key=waiting.__contains__):
        for budget in ends(plan.budget):
            made = plan.using.plan(name, plan.selections, table, float(budget), plan.rule, draw)
            if _same_plan(task, made, str(letters)):
                found: dict[str, Value] = {"plan.selector": name, "plan.budget": budget}
                return found if plan.seeds is None else {**found, PLAN_SEED: draw}
    raise SettingProblem(f"no selector and budget of the space make the plan {letters}", "plan")


def _per(space: Space) -> str:
    return space.plan.per if isinstance(space.plan, FreePlan) else ""


def _task(space: Space, given: Mapping[str, Value]) -> Task:
    """The task of the setting; what it leaves open is reported by the walk that follows."""

    def draw(name: str, domain: Domain) -> Any:
        known = name in given and domain.contains(given[name])
        return given[name] if known else middle(domain)

    return space.walk(draw).task


def _letters(space: Space, table: CostTable, given: Mapping[str, Value], seed: int) -> str:
    if "plan.selector" not in given:
        return str(given.get("plan", given.get("plan.all")))
    start = space.start_from
    if start is None:
        message = "this space draws levels and starts from no selector (search.start_from)"
        raise SettingProblem(message, "plan.selector")
    name, budget = str(given["plan.selector"]), given.get("plan.budget")
    if name not in start.using.names:
        hint = did_you_mean(name, start.using.names)
        raise SettingProblem(f"the search does not start from {name}, {hint}", "plan.selector")
    if budget is None:
        raise SettingProblem("leaves plan.budget open")
    if not Choice(start.budgets).contains(budget):
        known = Choice(start.budgets).describe()
        raise SettingProblem(f"{budget} is none of search.start_from: {known}", "plan.budget")
    return start.plan(name, table, float(budget), seed)


# --- what the space fixes -------------------------------------------------------------------------


def _check_fixed(space: Space, spec: TrialSpec, key: str, value: Value) -> None:
    """Raise SettingProblem unless a key that is not drawn has this value all the same."""
    plan = space.plan
    if key in ("plan", "plan.all"):
        if not _same_plan(spec.task, spec.plan, str(value)):
            raise SettingProblem(f"{value} is not in the space: the plan is {spec.plan}", key)
        return
    if isinstance(plan, SelectedPlan) and key in ("plan.selector", "plan.budget"):
        domain = Choice(plan.using.names) if key == "plan.selector" else plan.budget
        if METHODS.get(spec.method).levels != "F":
            _of_domain(key, domain, value)
            return
    if key in ("plan.selector", "plan.budget") and isinstance(plan, FreePlan):
        return  # settled by `_levels`
    owner = key.rpartition(".")[0]
    if owner in METHODS and owner != spec.method:
        raise SettingProblem(f"no parameter of method {spec.method}, which the row has", key)
    fixed = value_of(spec, key)
    if fixed is None:
        known = [*space.overrides, "method", "plan", *(f"{spec.method}.{p}" for p in spec.params)]
        raise SettingProblem(f"is no key of this space, {did_you_mean(key, known)}", key)
    if not Choice((fixed,)).contains(value):
        raise SettingProblem(f"{value} is not in the space, which has {fixed} for all", key)


def _same_plan(task: Task, plan: str, letters: str) -> bool:
    """Whether letters, or one letter for all layers, stand for the plan."""
    if len(letters) == 1:
        letters = with_real_inputs(letters * len(plan), task_cost_table(task).plan_layers)
    return plan == letters


def value_of(spec: TrialSpec, key: str) -> Any:
    """The value of a key of the space in a trial; None where the trial does not have it."""
    if key in ("method", "plan"):
        return getattr(spec, key)
    if key == "plan.all":
        return spec.plan[0] if len(set(spec.plan)) == 1 else None
    owner, _, name = key.rpartition(".")
    if owner == "model":
        given = spec.task.model.params
        if is_reference(spec.task.model.name):  # looking at a search runs no code
            return given.get(name)
        return MODELS.get(spec.task.model.name).resolve(given).get(name)
    if owner == spec.method:
        if name in spec.params or is_reference(owner):
            return spec.params.get(name)
        declared = METHODS.get(owner).params.get(name)
        return None if declared is None else declared.default
    found: Any = spec.task.model_dump()
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
