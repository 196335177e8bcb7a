"""The `space` section of a search YAML, as a `Space`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from bitfront.search.config.mistakes import first_mistake
from bitfront.search.config.schema import KeyProblem, SearchConfig
from bitfront.spaces.space import (
    FixedPlan,
    FreePlan,
    OnlyPlan,
    PlanSpace,
    SelectedPlan,
    Selecting,
    Space,
    StartFrom,
    ends,
)
from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.parameters import Choice, Domain, Float, Int, Param
from bitfront.trainables.plan import LEVELS, check_plan
from bitfront.trainables.selectors import RULES, SELECTORS
from bitfront.trainables.settings import (
    AttackSpec,
    DistillSpec,
    LearningRateSpec,
    LossSpec,
    OptimizerSpec,
)
from bitfront.trainables.task import Task, TrialSpec, with_overrides

# What a plan may decide at once.
PARTS = ("layer", "block", "stage", "model")
# Which file a teacher is, is not for a search to choose.
DISTILL_FILE = ("teacher", "sha256")
# What robust accuracy means is one thing for all trials.
MEASURED_ATTACK = ("evaluate", "examples", "memory_mb")
ATTACK_DECIDERS = (
    "attack.train",
    "attack.shrink",
    "augmentation",
    "loss.distill.kind",
    "pretrain.epochs",
)
# Parts of the task a search may change, besides the parameters of its model.
TASK_KEYS = (
    "batch_size",
    "augmentation",
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
    """The typed space, or the first thing wrong with it."""
    raw = dict(config.space)
    _known_keys(raw, config)
    method = _methods(raw.pop("method", None), "plan" in raw)
    plan = _plan(raw.pop("plan", None), [str(m) for m in method.values])
    overrides: dict[str, Domain] = {}
    method_params: dict[str, dict[str, Domain]] = {}
    for key, value in raw.items():
        path = ("space", key)
        prefix, _, name = key.rpartition(".")
        if prefix in METHODS:
            _method_parameter(path, prefix, name, value, method, method_params)
        elif key.startswith("model."):
            overrides[key] = _model_parameter(path, key, value, config)
        else:
            overrides[key] = _task_parameter(path, key, value, config)
    start = _start_from(config, plan, [str(m) for m in method.values])
    space = Space(config.task, method, plan, overrides, method_params, start)
    if isinstance(plan, OnlyPlan) and any(k.startswith("model.") for k in overrides):
        names = {tuple(plan.names(task_cost_table(task))) for task in space.extreme_tasks()}
        if len(names) > 1:
            raise KeyProblem(("space", "plan"), f"which {plan.per}? they change with the model")
    for task in space.extreme_tasks():
        try:
            table = task_cost_table(task)
        except UserError as error:
            raise KeyProblem(("task", "model"), str(error)) from None
        _check_plan_fits(space, plan, [layer.name for layer in table.plan_layers], table)
    _check_selecting(space)
    _check_pruning(config, space)
    _check_attacks(space)
    return space


def _check_pruning(config: SearchConfig, space: Space) -> None:
    """Every layer keeps something at the ends of rates and exponents, and the sampler can price
    what it proposes."""
    for name in map(str, space.method.values):
        domains = space.method_params.get(name, {})
        rates = [k for k in ("rate", "p", "layers") if k in domains]
        for ends_ in itertools.product(*(ends(domains[k]) for k in rates)):
            method = METHODS.get(name)(dict(zip(rates, ends_, strict=True)))
            for task in space.extreme_tasks():
                table = task_cost_table(task)
                try:
                    pruned = method.kept(table.sizes(_whole_plan(space.plan, table)))
                except UserError as error:
                    raise KeyProblem(
                        ("space", f"{name}.{(rates or ['rate'])[0]}"), str(error)
                    ) from None
                if pruned is None:
                    break
                free = isinstance(space.plan, FreePlan) and space.plan.per != "model"
                if free and config.search.sampler == "free-cost":
                    raise KeyProblem(
                        ("search", "sampler"),
                        f"free-cost adds up the costs of layers, but what {name} keeps of one "
                        "depends on the others: plan every layer alike, or take tpe",
                    )


def _whole_plan(plan: PlanSpace, table: CostTable) -> str:
    if isinstance(plan, FixedPlan):
        return plan.make(table, lambda name, domain: None, 0)
    return "W" * len(table.plan_layers)


def _check_attacks(space: Space) -> None:
    """Each method on its own terms: some train against attacks whatever the task says."""
    from bitfront.trainables.training.adversarial import check_attack

    changed = {k: ends(d) for k, d in space.overrides.items() if k in ATTACK_DECIDERS}
    for each in itertools.product(*changed.values()):
        try:
            task = with_overrides(space.task, dict(zip(changed, each, strict=True)))
        except ValidationError as error:
            raise KeyProblem(("task", "attack"), first_mistake(error)[1]) from None
        for name in map(str, space.method.values):
            try:
                check_attack(TrialSpec(task=task, method=name, plan=""))
            except UserError as error:
                key, _, text = str(error).partition(": ")
                raise KeyProblem(("task", *key.split(".")), text) from None


def distillations(config: SearchConfig, space: Space) -> list[Task]:
    """Tasks, one a kind of teaching and network, that trials may have a teacher in."""
    kinds = ends(space.overrides.get("loss.distill.kind", Choice((config.task.loss.distill.kind,))))
    lengths = ends(space.overrides.get("pretrain.epochs", Choice((config.task.pretrain.epochs,))))
    return [
        with_overrides(task, {"loss.distill.kind": kind, "pretrain.epochs": epochs})
        for kind in kinds
        if kind != "none"
        for epochs in lengths
        for task in space.extreme_tasks()
    ]


def stage_epochs(config: SearchConfig) -> list[int]:
    """Lengths of the full-precision stages trials may start from; none: all train end-to-end."""
    given = config.space.get("pretrain.epochs", config.task.pretrain.epochs)
    lengths = ends(parse_domain(("space", "pretrain.epochs"), given))
    return sorted(int(n) for n in lengths if int(n) > 0)


def _known_keys(raw: dict[str, Any], config: SearchConfig) -> None:
    """Unknown keys first: a typo in `method` must not be told as a missing method."""
    known = ["method", "plan", *TASK_KEYS]
    known += [f"model.{p}" for p in MODELS.get(config.task.model.name).params]
    for key in raw:
        prefix = key.rpartition(".")[0]
        if key not in known and prefix not in METHODS and prefix != "model":
            parameters = [f"{m}.{p}" for m in METHODS for p in METHODS.get(m).params]
            # `lr` is meant as `optimizer.lr`, however little the two look alike.
            ending = [k for k in known if k.endswith(f".{key}")]
            hint = did_you_mean(key, ending or [*known, *parameters])
            if ending:
                hint = f"did you mean {' or '.join(repr(k) for k in ending)}?"
            raise KeyProblem(("space", key), f"unknown key, {hint}")


def _check_plan_fits(space: Space, plan: PlanSpace, names: list[str], table: Any) -> None:
    if isinstance(plan, FixedPlan) and any(m != "fp" for m in space.method.values):
        letters = plan.make(table, lambda n, d: None, 0)
        try:
            check_plan(letters, table.plan_layers)
        except UserError as error:
            raise KeyProblem(("space", "plan"), str(error).removeprefix("plan: ")) from None
    if not names and isinstance(plan, FreePlan):
        raise KeyProblem(
            ("space", "plan"),
            "the model has no layer to plan; task.binarize: all plans every layer",
        )


def _methods(raw: Any, has_plan: bool) -> Choice:
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


def _plan(raw: Any, methods: list[str]) -> PlanSpace:
    path = ("space", "plan")
    planned = [m for m in methods if METHODS.get(m).levels != "F"]
    if raw is None:
        if planned:
            raise KeyProblem(
                path, f"is missing: {planned[0]} needs to know which layers are binary"
            )
        return FixedPlan("F")
    if isinstance(raw, str):
        raw = {"fixed": raw}
    if not isinstance(raw, dict):
        raise KeyProblem(
            path, "give letters, {per: layer}, {only: block} or {selector: ..., budget: ...}"
        )
    kinds = {"fixed": {"fixed"}, "per": {"per", "levels"}}
    kinds["only"] = {"only", "level"}
    kinds["selector"] = {"selector", "budget", "rule", "level", "seeds", "params", "trained_on"}
    kind = next((k for k in kinds if k in raw), "per")
    for key in raw:
        if key not in kinds[kind]:
            raise KeyProblem((*path, key), f"unknown key, {did_you_mean(str(key), kinds[kind])}")
    if kind == "fixed":
        letters = str(raw["fixed"])
        _known_levels((*path, "fixed"), sorted(set(letters)), planned)
        return FixedPlan(letters)
    if kind == "per":
        per = _one_of((*path, "per"), raw.get("per", "layer"), PARTS)
        given = raw.get("levels", ["F", "B"])
        levels = [str(x) for x in (given if isinstance(given, list) else list(str(given)))]
        _known_levels((*path, "levels"), levels, planned)
        if len(set(levels)) != len(levels) or not levels:
            raise KeyProblem((*path, "levels"), f"{levels}: each level once")
        return FreePlan(per, tuple(levels))
    if kind == "only":
        level = str(raw.get("level", "B"))
        _known_levels((*path, "level"), [level], planned)
        if level == "F":
            raise KeyProblem((*path, "level"), "F: the one that is drawn is to be binary")
        return OnlyPlan(_one_of((*path, "only"), raw["only"], PARTS[:3]), level)
    return _selected_plan(path, raw, planned)


def _one_of(path: tuple[str | int, ...], word: Any, known: Sequence[str]) -> str:
    if word not in known:
        raise KeyProblem(path, f"'{word}' is not known, {did_you_mean(str(word), known)}")
    return str(word)


def _selected_plan(path: tuple[str, str], raw: dict[str, Any], planned: list[str]) -> SelectedPlan:
    if "budget" not in raw:
        raise KeyProblem(
            (*path, "budget"), "is missing: percent of the network's full-precision flops"
        )
    budget = parse_domain((*path, "budget"), raw["budget"])
    _check_budgets((*path, "budget"), ends(budget))
    seeds = parse_domain((*path, "seeds"), raw["seeds"]) if "seeds" in raw else None
    if seeds is not None and not (
        isinstance(seeds, Choice) and all(type(v) is int and v >= 0 for v in seeds.values)
    ):
        raise KeyProblem((*path, "seeds"), "give a list of whole numbers")
    return SelectedPlan(
        _selecting(path, raw["selector"], raw, planned), budget, _rule(path, raw.get("rule")), seeds
    )


def _start_from(config: SearchConfig, plan: PlanSpace, methods: list[str]) -> StartFrom | None:
    given = config.search.start_from
    if given is None:
        return None
    path = ("search", "start_from")
    planned = [m for m in methods if METHODS.get(m).levels != "F"]
    if not isinstance(plan, FreePlan) or plan.per != "layer" or not planned:
        raise KeyProblem(path, "a selector's plan is one letter a layer: give plan {per: layer}")
    if given.level not in plan.levels or "F" not in plan.levels:
        raise KeyProblem((*path, "level"), f"the levels of the plan are {', '.join(plan.levels)}")
    _check_budgets((*path, "budgets"), given.budgets)
    raw = {"params": given.params, "trained_on": given.trained_on, "level": given.level}
    using = _selecting(path, given.selector, raw, planned)
    return StartFrom(using, tuple(given.budgets), _rule(path, given.rule))


def _selecting(
    path: tuple[str, str], names: Any, raw: dict[str, Any], planned: list[str]
) -> Selecting:
    listed = tuple(str(n) for n in (names if isinstance(names, list) else [names]))
    for name in listed:
        if name not in SELECTORS:
            hint = did_you_mean(name, SELECTORS)
            raise KeyProblem((*path, "selector"), f"unknown selector '{name}', {hint}")
    if not listed or len(set(listed)) != len(listed):
        raise KeyProblem((*path, "selector"), "give each selector once")
    level = str(raw.get("level", "B"))
    _known_levels((*path, "level"), [level], planned)
    params, on = raw.get("params") or {}, raw.get("trained_on") or {}
    for key, value in (("params", params), ("trained_on", on)):
        if not isinstance(value, dict):
            raise KeyProblem((*path, key), "give keys and values")
    declared = {k: p for name in listed for k, p in SELECTORS.get(name).params.items()}
    for key, value in params.items():
        if key not in declared:
            hint = did_you_mean(str(key), declared)
            raise KeyProblem((*path, "params", key), f"unknown key, {hint}")
        try:
            declared[key].check(str(key), value)
        except UserError as error:
            raise KeyProblem((*path, "params", key), _tail(error, key)) from None
    return Selecting(listed, params, on, level)


def _check_selecting(space: Space) -> None:
    """A selector ranks the layers of one network: wherever it looks, and whatever is drawn, there
    must be as many."""
    for using in space.selecting():
        path = ("space", "plan") if space.start_from is None else ("search", "start_from")
        try:
            tasks = [using.task(space.task)]
            dataset = DATASETS.get(tasks[0].dataset)
        except UserError as error:
            raise KeyProblem((*path, "trained_on", "dataset"), str(error)) from None
        except (ValidationError, KeyError, TypeError) as error:
            known = [*TASK_KEYS, "dataset", "subset", "data_dir"]
            key, hint = str(next(iter(using.trained_on))), ""
            if isinstance(error, ValidationError):
                wrong, hint = first_mistake(error)
                key = ".".join(map(str, wrong))
            if key not in known:
                hint = f"unknown key, {did_you_mean(key, known)}"
            raise KeyProblem((*path, "trained_on", key), hint) from None
        kind = DATASETS.get(space.task.dataset).kind
        if dataset.kind != kind:
            raise KeyProblem(
                (*path, "trained_on", "dataset"),
                f"{dataset.name} is for {dataset.kind}, not {kind}",
            )
        if not any(SELECTORS.get(name).trained for name in using.names):
            continue
        tasks += space.extreme_tasks()
        counts = {len(task_cost_table(task).plan_layers) for task in tasks}
        if len(counts) > 1:
            raise KeyProblem(
                path, f"a selector ranks one network, but there are some of {sorted(counts)} layers"
            )


def _check_budgets(path: tuple[str, ...], budgets: Any) -> None:
    for budget in budgets:
        if not isinstance(budget, int | float) or not 0 < budget <= 100:
            raise KeyProblem(path, f"{budget} is not a percentage in (0, 100]")


def _rule(path: tuple[str, str], given: Any) -> str:
    rule = str(given or "at_least")
    if rule not in RULES:
        raise KeyProblem((*path, "rule"), f"'{rule}' is not known, {did_you_mean(rule, RULES)}")
    return rule


def _tail(error: UserError, key: Any) -> str:
    return str(error).removeprefix(f"{key}: ")


def _known_levels(path: tuple[str | int, ...], levels: list[str], methods: list[str]) -> None:
    for level in levels:
        if level not in LEVELS:
            known = ", ".join(f"{k} ({v})" for k, v in LEVELS.items())
            raise KeyProblem(path, f"'{level}' is no level, one of: {known}")
        for method in methods:
            if level != "F" and level not in METHODS.get(method).levels:
                takes = METHODS.get(method).levels
                raise KeyProblem(path, f"method {method} takes the levels {takes}, not {level}")


def _method_parameter(
    path: tuple[str, str],
    method: str,
    name: str,
    value: Any,
    methods: Choice,
    into: dict[str, dict[str, Domain]],
) -> None:
    if not methods.contains(method):
        raise KeyProblem(path, f"method {method} is not among space.method: {methods.describe()}")
    declared = METHODS.get(method).params
    given = into.setdefault(method, {})
    if isinstance(value, dict) and "schedule" in value:
        for part, domain in _schedule_parts(path, name, value["schedule"], declared).items():
            given[part] = domain
        return
    if name not in declared:
        raise KeyProblem(path, f"unknown key, {did_you_mean(name, declared)}")
    given[name] = _declared_domain(path, declared[name], value)


def _schedule_parts(
    path: tuple[str, str], name: str, raw: Any, declared: dict[str, Param]
) -> dict[str, Domain]:
    """`mu: {schedule: {from: 5, to: 30, until: 0.8, shape: cosine}}` is short for mu_start,
    mu_end, mu_until and mu_shape."""
    words = {"from": "start", "to": "end", "until": "until", "shape": "shape"}
    if f"{name}_start" not in declared:
        scheduled = [p.removesuffix("_start") for p in declared if p.endswith("_start")]
        raise KeyProblem(path, f"no schedule of that name, {did_you_mean(name, scheduled)}")
    if not isinstance(raw, dict):
        raise KeyProblem((*path, "schedule"), "give from, to, until and shape")
    parts = {}
    for key, value in raw.items():
        if key not in words:
            hint = did_you_mean(str(key), words)
            raise KeyProblem((*path, "schedule", key), f"unknown key, {hint}")
        full = f"{name}_{words[key]}"
        parts[full] = _declared_domain((*path, "schedule", key), declared[full], value)
    return parts


def _declared_domain(path: tuple[str | int, ...], param: Param, value: Any) -> Domain:
    """The domain to search; `search` alone asks for the range the declaration recommends."""
    if value == "search":
        return param.search or param.domain
    domain = parse_domain(path, value)
    for end in ends(domain):
        try:
            param.check(str(path[-1]), end)
        except UserError as error:
            raise KeyProblem(path, _tail(error, path[-1])) from None
    return domain


def _model_parameter(path: tuple[str, str], key: str, value: Any, config: SearchConfig) -> Domain:
    declared = MODELS.get(config.task.model.name).params
    name = key.removeprefix("model.")
    if name not in declared:
        raise KeyProblem(path, f"unknown key, {did_you_mean(name, declared)}")
    return _declared_domain(path, declared[name], value)


def _task_parameter(path: tuple[str, str], key: str, value: Any, config: SearchConfig) -> Domain:
    domain = parse_domain(path, value)
    for end in ends(domain):
        try:
            with_overrides(config.task, {key: end})
        except ValidationError as error:
            raise KeyProblem(path, first_mistake(error)[1]) from None
    return domain


def parse_domain(path: tuple[str | int, ...], raw: Any) -> Domain:
    """`{float: [a, b], log: true}`, `{int: [a, b], step: n}`, `{choice: [...]}`, a list (short
    for choice) or a single value."""
    try:
        if isinstance(raw, list):
            return Choice(tuple(_scalar(path, v) for v in raw))
        if not isinstance(raw, dict):
            return Choice((_scalar(path, raw),))
        kinds = {"float": {"log"}, "int": {"log", "step"}, "choice": set()}
        kind = next((k for k in kinds if k in raw), None)
        if kind is None:
            word = next(iter(raw), "")
            raise KeyProblem(path, f"unknown kind '{word}', {did_you_mean(str(word), kinds)}")
        for key in raw:
            if key != kind and key not in kinds[kind]:
                hint = did_you_mean(str(key), {kind, *kinds[kind]})
                raise KeyProblem((*path, key), f"unknown key, {hint}")
        return _ranged(path, kind, raw)
    except ValueError as error:
        raise KeyProblem(path, str(error)) from None


def _ranged(path: tuple[str | int, ...], kind: str, raw: dict[str, Any]) -> Domain:
    given = raw[kind]
    if not isinstance(given, list):
        raise KeyProblem((*path, kind), "give a list")
    if kind == "choice":
        return Choice(tuple(_scalar(path, v) for v in given))
    if len(given) != 2 or not all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in given
    ):
        raise KeyProblem((*path, kind), f"give two numbers [low, high], got {given}")
    log = raw.get("log", False)
    if not isinstance(log, bool):
        raise KeyProblem((*path, "log"), f"true or false, got {log!r}")
    if kind == "float":
        return Float(float(given[0]), float(given[1]), log)
    if not all(float(v).is_integer() for v in (*given, raw.get("step", 1))):
        raise KeyProblem((*path, "int"), f"whole numbers, got {given}")
    return Int(int(given[0]), int(given[1]), int(raw.get("step", 1)), log)


def _scalar(path: tuple[str | int, ...], value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise KeyProblem(path, f"{value!r} is not a single value")
    return value
