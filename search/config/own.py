"""Code of the user's own in a configuration: networks, methods, selectors, samplers, metrics and
costs by reference, or by a name that an installed package declares. Each is written out with the
hash of its code, and keys of `space` that are about a method get its whole name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bitfront.search.config.errors import Problems
from bitfront.search.config.known import is_cost, names_of_costs
from bitfront.search.config.schema import SearchConfig
from bitfront.search.samplers.registry import SAMPLERS
from bitfront.trainables import own_code
from bitfront.trainables.costs import COSTS
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.registry import Registry
from bitfront.trainables.selectors import SELECTORS
from bitfront.trainables.tasks import kind_of
from bitfront.trainables.tasks.further import measured, settled_metric


def with_code(config: SearchConfig, problems: Problems) -> tuple[SearchConfig, dict[str, str]]:
    """The configuration with all code named by its hash, and the keys of `space` as they were
    written, by what they are called in it."""
    space, written = _space(config.space, problems)
    search = config.search
    with problems.at("search", "sampler"):
        search = search.model_copy(update={"sampler": settled_name(SAMPLERS, search.sampler)})
        SAMPLERS.get(search.sampler)
    if search.start_from is not None:
        with problems.at("search", "start_from", "selector"):
            chosen = _selectors(search.start_from.selector)
            start = search.start_from.model_copy(update={"selector": chosen})
            search = search.model_copy(update={"start_from": start})
    changes = {"space": space, "search": search, "costs": _costs(config, problems)}
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
            measured(kind_of(config.task.dataset), tuple(metrics[: index + 1]))
    return metrics


def settled_name(registry: Registry[Any], name: Any) -> Any:
    """The name with the hash of the code that it stands for; other names as they are."""
    reference = registry.reference(name) if isinstance(name, str) else None
    return name if reference is None else own_code.settle(reference)


def _space(given: Mapping[str, Any], problems: Problems) -> tuple[dict[str, Any], dict[str, str]]:
    space, written = dict(given), {}
    names: dict[str, str] = {}
    if "method" in space:
        with problems.at("space", "method"):
            space["method"], names = _methods(space["method"])
    renamed: dict[str, Any] = {}
    for key, value in space.items():
        owner, dot, parameter = key.rpartition(".")
        whole = names.get(owner, owner) + dot + parameter
        renamed[whole], written[whole] = value, key
    plan = renamed.get("plan")
    if isinstance(plan, Mapping) and "selector" in plan:
        with problems.at("space", "plan", "selector"):
            renamed["plan"] = {**plan, "selector": _selectors(plan["selector"])}
    return renamed, written


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
