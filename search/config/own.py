"""Code of the user's own in a configuration: networks, methods, selectors, samplers, metrics and
costs by reference, or by a name that an installed package declares. Each is written out with the
hash of its code, and keys of `space` that are about a method, or about all of them, get its whole
name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from bitfront.search.config.errors import Problems
from bitfront.search.config.known import is_cost, names_of_costs
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.paper import PaperSpec
from bitfront.search.config.space import named_methods
from bitfront.search.samplers.registry import SAMPLERS
from bitfront.trainables import own_code
from bitfront.trainables.costs import COSTS
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.registry import Registry
from bitfront.trainables.selectors import SELECTORS
from bitfront.trainables.tasks import kind_of
from bitfront.trainables.tasks.further import measured, settled_metric, try_metric

# What stands before a parameter of all methods of a space that have it.
OF_ALL = "method."


def with_code(config: SearchConfig, problems: Problems) -> tuple[SearchConfig, dict[str, str]]:
    """The configuration with all code named by its hash, and the keys of `space` as they were
    written, by what they are called in it."""
    space, written, names = _space(config.space, problems)
    search = config.search
    with problems.at("search", "sampler"):
        search = search.model_copy(update={"sampler": settled_name(SAMPLERS, search.sampler)})
        SAMPLERS.get(search.sampler)
    for key in ("start_from", "advice"):
        spec = getattr(search, key)
        if spec is not None:
            with problems.at("search", key, "selector"):
                named = spec.model_copy(update={"selector": _selectors(spec.selector)})
                search = search.model_copy(update={key: named})
    changes: dict[str, Any] = {"space": space, "search": search, "costs": _costs(config, problems)}
    if config.paper is not None:
        changes["paper"] = _paper(config.paper, names)
    model = config.task.model
    with problems.at("task", "model", "name"):
        model = model.model_copy(update={"name": settled_name(MODELS, model.name)})
    metrics = _metrics(config, problems)
    task = config.task.model_copy(update={"metrics": metrics, "model": model})
    return config.model_copy(update={**changes, "task": task}), written


def _costs(config: SearchConfig, problems: Problems) -> list[str]:
    costs = list(config.costs)
    for index, text in enumerate(config.costs):
        with problems.at("costs", index):
            costs[index] = settled_name(COSTS, text)
            name = COSTS.get(costs[index]).name
            if not is_reference(costs[index]):
                raise UserError(f"{text} is counted anyway", "name code of your own here")
            if name in names_of_costs(costs[:index]) or not is_cost(name):
                raise UserError(f"the name {name} is taken", "give the function another name")
    return costs


def _metrics(config: SearchConfig, problems: Problems) -> list[str]:
    metrics = list(config.task.metrics)
    for index, text in enumerate(config.task.metrics):
        with problems.at("task", "metrics", index):
            name = text.partition(";")[0].rpartition(":")[2].partition("@")[0].rpartition(".")[2]
            metrics[index] = settled_metric(text, config.objectives.get(f"val_{name}"))
    return metrics


def check_metrics(config: SearchConfig, problems: Problems) -> None:
    """Note metrics of the user's own that fail or are not for the data, whose kind is known once
    they were looked at."""
    metrics = config.task.metrics
    if not metrics or DATASETS.is_unseen(config.task.dataset):
        return
    with suppress(UserError):  # an unknown dataset is reported with the task
        kind = kind_of(config.task.dataset)
        for index in range(len(metrics)):
            with problems.at("task", "metrics", index):
                measured(kind, tuple(metrics[: index + 1]))
                if kind.name != "own":  # whose outputs may have any shape
                    try_metric(metrics[index], DATASETS.get(config.task.dataset))


def settled_name(registry: Registry[Any], name: Any) -> Any:
    """The name with the hash of the code that it stands for; other names as they are."""
    reference = registry.reference(name) if isinstance(name, str) else None
    return name if reference is None else own_code.settle(reference)


def _paper(paper: PaperSpec, names: Mapping[str, str]) -> PaperSpec:
    """The paper with settings that name methods and selectors as the space does; `names` are whole
    names of methods. One that is not known is reported with its row."""

    def settled(where: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for key, value in where.items():
            owner, dot, parameter = key.rpartition(".")
            if key.startswith(OF_ALL):
                owner = str(where.get("method", owner))
            found[names.get(owner, owner) + dot + parameter] = value
        if "method" in found:
            found["method"] = names.get(str(found["method"]), found["method"])
        if "plan.selector" in found:
            with suppress(UserError):
                found["plan.selector"] = settled_name(SELECTORS, found["plan.selector"])
        return found

    rows = [row.model_copy(update={"where": settled(row.where)}) for row in paper.rows]
    return paper.model_copy(update={"where": settled(paper.where), "rows": rows})


def _space(
    given: Mapping[str, Any], problems: Problems
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    space, written = dict(given), {}
    names: dict[str, str] = {}
    if "method" in space:
        with problems.at("space", "method"):
            space["method"], names = _methods(space["method"])
    renamed: dict[str, Any] = {}
    for key in [key for key in space if key.startswith(OF_ALL)]:
        value, parameter = space.pop(key), key.removeprefix(OF_ALL)
        with problems.at("space", key):
            for name in _having(parameter, named_methods(space)):
                whole = f"{name}.{parameter}"
                renamed[whole], written[whole] = value, key
    for key, value in space.items():
        owner, dot, parameter = key.rpartition(".")
        whole = names.get(owner, owner) + dot + parameter
        renamed[whole], written[whole] = value, key
    plan = renamed.get("plan")
    if isinstance(plan, Mapping) and "selector" in plan:
        with problems.at("space", "plan", "selector"):
            renamed["plan"] = {**plan, "selector": _selectors(plan["selector"])}
    return renamed, written, names


def _having(parameter: str, methods: Sequence[str]) -> list[str]:
    """Those of the methods that have a parameter, or a schedule of that name."""
    declared = {name: METHODS.get(name).params for name in methods if name in METHODS}
    forms = (parameter, f"{parameter}_start")
    found = [name for name, params in declared.items() if any(form in params for form in forms)]
    if declared and not found:
        known = sorted({key for params in declared.values() for key in params})
        raise UserError(f"no method of the space has it, {did_you_mean(parameter, known)}")
    return found


def _methods(given: Any) -> tuple[Any, dict[str, str]]:
    """The value of `space.method` with its code settled, and the settled names by the names that
    keys may use: as written, and the one that the code gives itself."""
    names: dict[str, str] = {}

    def settled(name: Any) -> Any:
        found = settled_name(METHODS, name)
        if found != name or (isinstance(name, str) and METHODS.reference(name) is not None):
            own = METHODS.get(found).name
            names.update({str(name): found, own_code.shown(found): found})
            if own not in METHODS.find():
                names.setdefault(own, found)
        return found

    return _each(given, settled), names


def _selectors(given: Any) -> Any:
    def settled(name: Any) -> Any:
        found = settled_name(SELECTORS, name)
        if found != name:
            SELECTORS.get(found)
        return found

    return _each(given, settled)


def _each(given: Any, change: Callable[[Any], Any]) -> Any:
    """The value with every name in it changed: it is a name, a list of names or `{choice: ...}`."""
    if isinstance(given, list):
        return [change(each) for each in given]
    if isinstance(given, Mapping) and isinstance(given.get("choice"), list):
        return {**given, "choice": [change(each) for each in given["choice"]]}
    return change(given)
