"""`space.plan` and `search.start_from` as models, and the plans they stand for. Whether a plan fits
a network is checked in `checks.space`, once the network is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from bitfront.search.config.domains import parse_domain
from bitfront.search.config.errors import KeyPath, KeyProblem, without_key
from bitfront.search.config.mistakes import validated
from bitfront.spaces.space import (
    Advice,
    FixedPlan,
    FreePlan,
    OnlyPlan,
    PlanSpace,
    SelectedPlan,
    Selecting,
    StartFrom,
    ends,
)
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Choice, Confidence, Domain, Prior
from bitfront.trainables.plan import LEVELS
from bitfront.trainables.selectors import RULES, SELECTORS
from bitfront.trainables.settings import Strict

PLAN = ("space", "plan")
START = ("search", "start_from")
ADVICE = ("search", "advice")


def _letters(given: Any) -> list[str]:
    return [str(level) for level in (given if isinstance(given, list) else str(given))]


class FixedPlanSpec(Strict):
    """The same plan for every trial: `{fixed: FBBF}`, for which `FBBF` is short."""

    fixed: Annotated[str, BeforeValidator(str)]


class FreePlanSpec(Strict):
    """A level drawn for every part of the network: `{per: layer, levels: [F, B]}`."""

    per: Literal["layer", "block", "stage", "model"] = "layer"
    levels: Annotated[list[str], BeforeValidator(_letters)] = Field(
        default_factory=lambda: ["F", "B"]
    )
    prior: dict[str, Annotated[str, BeforeValidator(str)]] = Field(default_factory=dict)
    """levels that parts are believed to have on the front: `{head: F}`"""
    confidence: Confidence = "medium"

    @field_validator("levels")
    @classmethod
    def _each_once(cls, levels: list[str]) -> list[str]:
        if len(set(levels)) != len(levels) or not levels:
            raise ValueError(f"{levels}: each level once")
        return levels


class OnlyPlanSpec(Strict):
    """One part of the network binary, which one is drawn: `{only: block, level: W}`."""

    only: Literal["layer", "block", "stage"]
    level: Annotated[str, BeforeValidator(str)] = "B"


class SelectingSpec(Strict):
    """Selectors and how they are asked for a plan."""

    selector: str | list[str]
    """one or several of `bitfront selectors`, or code of your own (`my_selector.py:choose`)"""
    rule: str = "at_least"
    """`at_least`: stop before the flops fall below the budget; `nearest`: as near as it gets"""
    level: str = "B"
    """of the layers that are chosen"""
    params: dict[str, Any] = Field(default_factory=dict)
    """parameters of the selector"""
    trained_on: dict[str, Any] = Field(default_factory=dict)
    """changes of the task whose network the selector looks at: another dataset, fewer epochs"""

    @field_validator("rule")
    @classmethod
    def _known_rule(cls, rule: str) -> str:
        if rule not in RULES:
            raise ValueError(f"'{rule}' is not known, {did_you_mean(rule, RULES)}")
        return rule


class SelectedPlanSpec(SelectingSpec):
    """A plan made by a selector: `{selector: first, budget: [80, 40]}`."""

    budget: Any = None
    """percent of the flops of the trial's network in full precision: a number, a list or a range"""
    seeds: Any = None
    """of the draws of random selectors, a list; the seed of the search when not given"""


class StartSpec(SelectingSpec):
    """Plans that a search over free plans begins with."""

    budgets: Annotated[list[float], Field(min_length=1)] = Field(
        default_factory=lambda: [80.0, 60.0, 40.0, 20.0, 10.0]
    )
    """percent of the network's flops in full precision; a plan is made for each"""


PlanSpec = FixedPlanSpec | FreePlanSpec | OnlyPlanSpec | SelectedPlanSpec
# The kind of plan that a mapping describes, by the key it has.
KINDS: dict[str, type[PlanSpec]] = {
    "fixed": FixedPlanSpec,
    "per": FreePlanSpec,
    "only": OnlyPlanSpec,
    "selector": SelectedPlanSpec,
}


def parse_plan(raw: Any, methods: Sequence[str]) -> PlanSpace:
    """The plans that `space.plan` stands for, for trials of these methods."""
    planned = binary_methods(methods)
    if raw is None:
        if planned:
            message = f"is missing: {planned[0]} needs to know which layers are binary"
            raise KeyProblem(PLAN, message)
        return FixedPlan("F")
    if isinstance(raw, str):
        raw = {"fixed": raw}
    if not isinstance(raw, dict):
        raise KeyProblem(
            PLAN, "give letters, {per: layer}, {only: block} or {selector: ..., budget: ...}"
        )
    kind = next((KINDS[key] for key in KINDS if key in raw), FreePlanSpec)
    match validated(kind, raw, PLAN):
        case FixedPlanSpec(fixed=letters):
            _check_levels((*PLAN, "fixed"), sorted(set(letters)), planned)
            return FixedPlan(letters)
        case FreePlanSpec(per=per, levels=levels, prior=prior, confidence=confidence):
            _check_levels((*PLAN, "levels"), levels, planned)
            for part, level in prior.items():
                if level not in levels:
                    message = f"the levels of the plan are {', '.join(levels)}, not {level}"
                    raise KeyProblem((*PLAN, "prior", part), message)
            priors = {part: Prior(level, confidence) for part, level in prior.items()}
            return FreePlan(per, tuple(levels), priors)
        case OnlyPlanSpec(only=part, level=level):
            _check_levels((*PLAN, "level"), [level], planned)
            if level == "F":
                raise KeyProblem((*PLAN, "level"), "F: the one that is drawn is to be binary")
            return OnlyPlan(part, level)
        case SelectedPlanSpec() as spec:
            return _selected_plan(spec, planned)
    raise AssertionError(kind)


def binary_methods(methods: Sequence[str]) -> list[str]:
    """Those of the methods that make layers binary and so need a plan."""
    return [name for name in methods if METHODS.get(name).levels != "F"]


def _selected_plan(spec: SelectedPlanSpec, planned: Sequence[str]) -> SelectedPlan:
    path = (*PLAN, "budget")
    if "budget" not in spec.model_fields_set:
        raise KeyProblem(path, "is missing: percent of the network's full-precision flops")
    budget = _without_prior(path, parse_domain(path, spec.budget))
    _check_budgets(path, ends(budget))
    path = (*PLAN, "seeds")
    given = "seeds" in spec.model_fields_set
    seeds = _without_prior(path, parse_domain(path, spec.seeds)) if given else None
    if seeds is not None and not (
        isinstance(seeds, Choice) and all(type(v) is int and v >= 0 for v in seeds.values)
    ):
        raise KeyProblem(path, "give a list of whole numbers")
    return SelectedPlan(_selecting(PLAN, spec, planned), budget, spec.rule, seeds)


def _without_prior(path: KeyPath, domain: Domain) -> Domain:
    """The domain of something that has no best value: a front has plans of all budgets."""
    if domain.prior is not None:
        raise KeyProblem((*path, "prior"), "no value is the best one here")
    return domain


def parse_start(spec: StartSpec, plan: PlanSpace, methods: Sequence[str]) -> StartFrom:
    """The plans of selectors that a search over the free plan begins with."""
    _check_budgets((*START, "budgets"), spec.budgets)
    return StartFrom(_ranking(START, spec, plan, methods), tuple(spec.budgets), spec.rule)


def parse_advice(spec: SelectingSpec, plan: PlanSpace, methods: Sequence[str]) -> Advice:
    """The selectors whose orders of layers the model of a search over the free plan begins with."""
    return Advice(_ranking(ADVICE, spec, plan, methods))


def _ranking(
    path: KeyPath, spec: SelectingSpec, plan: PlanSpace, methods: Sequence[str]
) -> Selecting:
    """Selectors that rank the layers of a free plan."""
    planned = binary_methods(methods)
    if not isinstance(plan, FreePlan) or plan.per != "layer" or not planned:
        raise KeyProblem(path, "a selector's plan is one letter a layer: give plan {per: layer}")
    if spec.level not in plan.levels or "F" not in plan.levels:
        message = f"the levels of the plan are {', '.join(plan.levels)}"
        raise KeyProblem((*path, "level"), message)
    for name in [spec.selector] if isinstance(spec.selector, str) else spec.selector:
        if name in SELECTORS and SELECTORS.get(name).method is not None:
            raise KeyProblem((*path, "selector"), f"{name} removes channels, it makes no plan")
    return _selecting(path, spec, planned)


def _selecting(path: KeyPath, spec: SelectingSpec, planned: Sequence[str]) -> Selecting:
    """The selectors of a plan, which stands at `path`, with their parameters checked."""
    names = tuple(spec.selector if isinstance(spec.selector, list) else [spec.selector])
    for name in names:
        if name not in SELECTORS:
            hint = did_you_mean(name, SELECTORS)
            raise KeyProblem((*path, "selector"), f"unknown selector '{name}', {hint}")
    if not names or len(set(names)) != len(names):
        raise KeyProblem((*path, "selector"), "give each selector once")
    _check_levels((*path, "level"), [spec.level], planned)
    declared = {k: p for name in names for k, p in SELECTORS.get(name).params.items()}
    for key, value in spec.params.items():
        where = (*path, "params", key)
        if key not in declared:
            raise KeyProblem(where, f"unknown key, {did_you_mean(key, declared)}")
        try:
            declared[key].check(key, value)
        except UserError as error:
            raise KeyProblem(where, without_key(str(error), (key,))) from None
    return Selecting(names, spec.params, spec.trained_on, spec.level)


def _check_budgets(path: KeyPath, budgets: Sequence[Any]) -> None:
    for budget in budgets:
        if not isinstance(budget, int | float) or not 0 < budget <= 100:
            raise KeyProblem(path, f"{budget} is not a percentage in (0, 100]")


def _check_levels(path: KeyPath, levels: Sequence[str], methods: Sequence[str]) -> None:
    """Refuse a level that does not exist or that one of the methods does not take."""
    for level in levels:
        if level not in LEVELS:
            known = ", ".join(f"{k} ({v})" for k, v in LEVELS.items())
            raise KeyProblem(path, f"'{level}' is no level, one of: {known}")
        for method in methods:
            takes = METHODS.get(method).levels
            if level != "F" and level not in takes:
                raise KeyProblem(path, f"method {method} takes the levels {takes}, not {level}")
