"""From the `space` section of a search YAML to a `Space`: which keys there are, and the domain that
each of them stands for. What the values look like is in `domains` and `plans`; whether the space
fits its network is checked in `checks.space`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bitfront.search.config.domains import ScheduleSpec, parse_domain
from bitfront.search.config.errors import KeyPath, KeyProblem, Problems, without_key
from bitfront.search.config.mistakes import first_mistake, validated
from bitfront.search.config.plans import parse_advice, parse_plan, parse_start
from bitfront.search.config.schema import SearchConfig
from bitfront.spaces.space import Space, ends
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.own_code.signatures import is_open
from bitfront.trainables.parameters import Anything, Choice, Domain, Param
from bitfront.trainables.settings import (
    AttackSpec,
    DistillSpec,
    LearningRateSpec,
    LossSpec,
    OptimizerSpec,
)
from bitfront.trainables.task import with_overrides

# Keys of `distill` that a search may not vary: they name the file of the teacher.
DISTILL_FILE = ("teacher", "sha256")
# Keys of `attack` that a search may not vary: robust accuracy means the same for all trials.
MEASURED_ATTACK = ("evaluate", "examples", "memory_mb")
# Parts of the task a search may change, besides the parameters of its model.
TASK_KEYS = (
    "batch_size",
    "augmentation",
    "activations",
    "precision",
    "epochs",
    "pretrain.epochs",
    "pretrain.binary_epochs",
    *(f"optimizer.{key}" for key in OptimizerSpec.model_fields),
    *(f"schedule.{key}" for key in LearningRateSpec.model_fields if key != "at"),
    *(f"loss.{key}" for key in LossSpec.model_fields if key != "distill"),
    *(f"attack.{key}" for key in AttackSpec.model_fields if key not in MEASURED_ATTACK),
    *(f"loss.distill.{key}" for key in DistillSpec.model_fields if key not in DISTILL_FILE),
)


def build_space(config: SearchConfig) -> Space:
    """The space of a configuration. The first thing wrong with it is raised as a KeyProblem."""
    problems = Problems()
    space = read_space(config, problems)
    if space is None:
        raise problems[0]
    return space


def read_space(config: SearchConfig, problems: Problems) -> Space | None:
    """The space of a configuration; None, and everything that is wrong with it in `problems`. No
    network is built: whether plans fit it is for `checks.space`."""
    raw, before = dict(config.space), len(problems)
    unknown = _unknown_keys(raw, config)
    problems += unknown.values()
    if unknown and "method" not in raw:
        return None  # a typo in `method` must not be reported as a missing method
    method = plan = begin = advice = None
    with problems.at("space"):
        method = _methods(raw.pop("method", None), "plan" in raw)
        names = [str(name) for name in method.values]
        plan = parse_plan(raw.pop("plan", None), names)
        start = config.search.start_from
        begin = None if start is None else parse_start(start, plan, names)
        asked = config.search.advice
        advice = None if asked is None else parse_advice(asked, plan, names)
    if method is None:
        return None
    overrides: dict[str, Domain] = {}
    method_params: dict[str, dict[str, Domain]] = {}
    for key in [key for key in raw if key not in (*unknown, "plan")]:
        with problems.at("space", key):
            owner, given = _drawn(key, raw[key], method, config)
            (overrides if owner is None else method_params.setdefault(owner, {})).update(given)
    if plan is None or len(problems) > before:
        return None
    own = tuple(config.costs)
    return Space(
        config.task, method, plan, overrides, method_params, begin, own_costs=own, advice=advice
    )


def _drawn(
    key: str, value: Any, method: Choice, config: SearchConfig
) -> tuple[str | None, dict[str, Domain]]:
    """The method that a key of the space is a parameter of, if it is one, and the domains that it
    stands for, by name."""
    path = ("space", key)
    owner, _, name = key.rpartition(".")
    if owner in METHODS:
        return owner, _method_parameter(path, owner, name, value, method)
    if key.startswith("model."):
        return None, {key: _model_parameter(path, key, value, config)}
    return None, {key: _task_parameter(path, key, value, config)}


def _unknown_keys(raw: Mapping[str, Any], config: SearchConfig) -> dict[str, KeyProblem]:
    """What is said of every key that there is not. A parameter of an unknown method is left to what
    is said of that method."""
    known = ["method", "plan", *TASK_KEYS]
    known += [f"model.{p}" for p in MODELS.get(config.task.model.name).params]
    methods = named_methods(raw)
    found = {}
    for key in raw:
        owner = key.rpartition(".")[0]
        if key in known or owner in (*methods, "model") or owner in METHODS:
            continue
        parameters = [f"{m}.{p}" for m in METHODS for p in METHODS.get(m).params]
        # `lr` is meant as `optimizer.lr`, however little the two look alike.
        ending = [k for k in known if k.endswith(f".{key}")]
        hint = did_you_mean(key, [*known, *parameters])
        if ending:
            hint = f"did you mean {' or '.join(repr(k) for k in ending)}?"
        found[key] = KeyProblem(("space", key), f"unknown key, {hint}")
    return found


def named_methods(raw: Mapping[str, Any]) -> list[str]:
    """The methods that a space names, whether they are known or not."""
    given = raw.get("method")
    given = given.get("choice") if isinstance(given, dict) else given
    return [str(name) for name in (given if isinstance(given, list) else [given]) if name]


def _methods(raw: Any, has_plan: bool) -> Choice:
    """The methods that trials choose among; full precision where none is given."""
    path = ("space", "method")
    if raw is None:
        if has_plan:
            raise KeyProblem(path, "is missing: a plan needs a method, for example bnn")
        return Choice(("fp",))
    domain = parse_domain(path, raw)
    if not isinstance(domain, Choice):
        raise KeyProblem(path, "give a method or a choice of methods")
    for name in domain.values:
        if str(name) not in METHODS:
            raise KeyProblem(path, f"unknown method '{name}', {did_you_mean(str(name), METHODS)}")
    return domain


def _method_parameter(
    path: KeyPath, method: str, name: str, value: Any, methods: Choice
) -> dict[str, Domain]:
    """The parameter of a method, or the parameters that its schedule stands for, by name."""
    if not methods.contains(method):
        raise KeyProblem(path, f"method {method} is not among space.method: {methods.describe()}")
    declared = METHODS.get(method).params
    if isinstance(value, dict) and "schedule" in value:
        return _schedule_parts(path, name, value["schedule"], declared)
    if name not in declared:
        raise KeyProblem(path, f"unknown key, {did_you_mean(name, declared)}")
    return {name: _declared_domain(path, declared[name], value)}


def _schedule_parts(
    path: KeyPath, name: str, raw: Any, declared: dict[str, Param]
) -> dict[str, Domain]:
    """`mu: {schedule: {from: 5, to: 30, until: 0.8, shape: cosine}}` is short for mu_start,
    mu_end, mu_until and mu_shape."""
    if f"{name}_start" not in declared:
        scheduled = [p.removesuffix("_start") for p in declared if p.endswith("_start")]
        raise KeyProblem(path, f"no schedule of that name, {did_you_mean(name, scheduled)}")
    path = (*path, "schedule")
    if not isinstance(raw, dict):
        raise KeyProblem(path, "give from, to, until and shape")
    schedule = validated(ScheduleSpec, raw, path)
    return {
        f"{name}_{part}": _declared_domain((*path, key), declared[f"{name}_{part}"], value)
        for part, (key, value) in schedule.parts().items()
    }


def _declared_domain(path: KeyPath, param: Param, value: Any) -> Domain:
    """The domain to search; `search` alone asks for the range the declaration recommends."""
    if value == "search":
        found = param.search or param.domain
        if isinstance(found, Anything):
            raise KeyProblem(path, "has no range of its own: give the values, for example [8, 16]")
        if param.search is None and is_open(found):
            raise KeyProblem(path, "give the range to search: {float: [low, high]}")
        return found
    domain = parse_domain(path, value)
    for end in ends(domain):
        try:
            param.check(str(path[-1]), end)
        except UserError as error:
            raise KeyProblem(path, without_key(str(error), path[-1:])) from None
    return domain


def _model_parameter(path: KeyPath, key: str, value: Any, config: SearchConfig) -> Domain:
    model = MODELS.get(config.task.model.name)
    name = key.removeprefix("model.")
    declared = model.param(name)
    if declared is None:
        raise KeyProblem(path, f"unknown key, {did_you_mean(name, model.params)}")
    return _declared_domain(path, declared, value)


def _task_parameter(path: KeyPath, key: str, value: Any, config: SearchConfig) -> Domain:
    """The domain of a part of the task; the schema of the task says what it accepts."""
    domain = parse_domain(path, value)
    for end in ends(domain):
        try:
            with_overrides(config.task, {key: end})
        except ValidationError as error:
            raise KeyProblem(path, first_mistake(error)[1]) from None
    return domain
