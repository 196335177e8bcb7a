"""Loading a search: a YAML file and overrides become, in one pass, a `SearchConfig` and a `Space`.
All mistakes are reported here, before anything starts, with file, line, key and the nearest valid
word."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from bitfront.search import kept_code, named
from bitfront.search.config.checks.device import with_device
from bitfront.search.config.checks.paper import check_rows
from bitfront.search.config.checks.search import check_config
from bitfront.search.config.checks.space import check_space
from bitfront.search.config.checks.task import check_data, check_model
from bitfront.search.config.errors import ConfigError, KeyPath, Problems
from bitfront.search.config.known import direction
from bitfront.search.config.mistakes import mistakes
from bitfront.search.config.own import check_metrics, with_code
from bitfront.search.config.schema import SEARCH_FORMAT, SearchConfig
from bitfront.search.config.sections.bounds import Limit
from bitfront.search.config.settle import settled, with_hashes
from bitfront.search.config.source import Source, override, parse, read
from bitfront.search.config.space import named_methods, read_space
from bitfront.search.urls import know, with_secrets
from bitfront.spaces.space import Space
from bitfront.trainables import own_code
from bitfront.trainables.costs import devices
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import did_you_mean
from bitfront.trainables.methods import METHODS
from bitfront.trainables.text_files import check_format, dump_yaml

# Sections that may be written as a single value, and what that is; `*` is the name of a limit.
_SHORT = {
    ("limits", "*"): "a number",
    ("task", "model"): "a name",
    ("task", "optimizer"): "a name",
    ("task", "schedule"): "a name",
    ("task", "pretrain"): "a number of epochs or a file",
    ("task", "loss", "distill"): "a name",
    ("search", "early_stopping"): "true or false",
    ("search", "advice"): "a name",
    ("search", "pause"): "true or false",
    ("device",): "a name",
}


def load(
    path: Path, assignments: Sequence[str] = (), name: str | None = None, timed: bool = True
) -> tuple[SearchConfig, Space]:
    """The search of a YAML file, with `key=value` assignments applied and, if given, another
    name. `timed`: with its device table, if it needs one; without, costs that were measured are
    not known."""
    source = read(path)
    source.data.setdefault("name", path.stem)
    kept_code.look(path.absolute().parent)  # where it is that of a search
    own_code.look_in(path.absolute().parent)
    devices.look_in(path.absolute().parent)
    return _loaded(source, assignments, name, timed=timed)


def load_text(
    text: str,
    file: str = "search.yaml",
    assignments: Sequence[str] = (),
    name: str | None = None,
    stored: bool = False,
) -> tuple[SearchConfig, Space]:
    """The search of a YAML text; messages name it `file`. `stored`: the text is that of a search
    that was begun, maybe by an older version, whose rows of a paper may leave keys open."""
    source = parse(text, file)
    source.data.setdefault("name", "search")
    return _loaded(source, assignments, name, stored)


def load_data(
    data: Mapping[str, Any], called: str, timed: bool = True
) -> tuple[SearchConfig, Space]:
    """The search of data as a YAML has them; messages name them `called`."""
    source = parse(dump_yaml(dict(data)), called)
    source.lines.clear()  # nobody has seen that text
    return _loaded(source, (), None, timed=timed)


def _loaded(
    source: Source,
    assignments: Sequence[str],
    name: str | None,
    stored: bool = False,
    timed: bool = True,
) -> tuple[SearchConfig, Space]:
    override(source, assignments)
    check_format(source.data.get("bitfront_search"), SEARCH_FORMAT, f"{source.name}: the search")
    if name is not None:
        source.data["name"] = name
        source.overridden[("name",)] = "--name"
    _expand_short(source.data)
    know(source.data)
    source.data["storage"] = _place(source.data.get("storage"), named.given("storage"))
    try:
        config = SearchConfig.model_validate(source.data)
    except ValidationError as error:
        raise ConfigError([*messages(error, source), *_further(error, source)]) from None
    problems = Problems()
    config, written = with_code(config, problems)
    for key, before in written.items():
        if ("space", before) in source.lines:
            source.lines["space", key] = source.lines["space", before]
    wrong = {problem.path[:2] for problem in problems}
    config = settled(config, problems)
    if ("task", "metrics") not in wrong:
        check_metrics(config, problems)
        wrong |= {problem.path[:2] for problem in problems if problem.path[1:2] == ("metrics",)}
    # All mistakes are told in one round, as far as one is not the consequence of another.
    if not any(path[:1] == ("costs",) or path == ("task", "metrics") for path in wrong):
        check_config(config, problems)
    if ("task", "model") not in wrong:
        check_model(config.task, problems)
    known = not any(problem.path[:2] == ("task", "model") for problem in problems)
    known = known and not any(path[:1] == ("space",) for path in wrong)
    space = read_space(config, problems) if known else None
    _refuse(problems, source)
    check_data(config.task, problems)
    _refuse(problems, source)
    assert space is not None
    if timed:
        config, space = with_device(config, space, source.name, problems)
        _refuse(problems, source)
    check_space(config, space, problems)
    _refuse(problems, source)
    # Who changes the space of a ready-made search makes no mistake in its rows: see `cautions`.
    if not stored and not _other_space(source):
        check_rows(config, space, problems)
        _refuse(problems, source)
    config = with_hashes(config)
    return config, replace(space, task=config.task)


def _other_space(source: Source) -> bool:
    """Whether the space was changed on the command line, and the rows of a paper were not."""
    changed = {str(path[0]) for path in source.overridden}
    return "space" in changed and "paper" not in changed


def _further(error: ValidationError, source: Source) -> list[str]:
    """A line for each mistake that the checks without torch find in what the schema accepts, so
    that they are told in the same round as those of the schema."""
    data = copy.deepcopy(source.data)
    wrong = [path for path, _ in mistakes(error, source.data, _keys_at, _short_at)]
    for path in wrong:
        _drop(data, path)
    try:
        config = SearchConfig.model_validate(data)
    except ValidationError:
        return []
    problems = Problems()
    check_config(config, problems)
    for name in named_methods(config.space):
        if not own_code.is_reference(name) and name not in METHODS:
            message = f"unknown method '{name}', {did_you_mean(name, METHODS)}"
            problems.add(("space", "method"), message)
    if not DATASETS.is_unseen(config.task.dataset):
        with problems.at("task", "dataset"):
            DATASETS.get(config.task.dataset)
    # What is missing now may be what was dropped; default objectives may need a look at the data.
    dropped = {path[0] for path in wrong if path[0] != "task"} | {"paper"}
    kept = [p for p in problems if p.path != ("objectives",) and p.path[0] not in dropped]
    return [_line(source, p.path, p.message) for p in kept]


def _drop(data: Any, path: KeyPath) -> None:
    """Remove the value at a path, if there is one."""
    for part in path[:-1]:
        try:
            data = data[part]
        except (LookupError, TypeError):
            return
    if isinstance(data, dict):
        data.pop(path[-1], None)


def _refuse(problems: Problems, source: Source) -> None:
    """Raise the mistakes found so far, if any: what comes next relies on there being none."""
    if problems:
        lines = [_line(source, problem.path, problem.message) for problem in problems]
        raise ConfigError(list(dict.fromkeys(lines)))


def _place(given: Any, known: str | None) -> Any:
    """The storage of checkpoints: what the YAML says, with the secrets of `known` where it is the
    same place; `known` itself where the YAML says nothing."""
    if given is None:
        return known or None
    return with_secrets(given, known) if isinstance(given, str) else given


def _expand_short(data: dict[str, Any]) -> None:
    """Write a limit that is a bare number as the worst value it is short for (of a metric whose
    best is its greatest value a minimum, else a maximum), and the name of a device table as its
    section."""
    if isinstance(data.get("device"), str):
        data["device"] = {"table": data["device"]}
    limits = data.get("limits")
    if isinstance(limits, dict):
        for key, limit in limits.items():
            if isinstance(limit, int | float) and not isinstance(limit, bool):
                limits[key] = {"min" if direction(str(key)) == "max" else "max": limit}


def messages(error: ValidationError, source: Source) -> list[str]:
    """A line for everything the schema finds wrong with the source."""
    found = mistakes(error, source.data, _keys_at, _short_at)
    return list(dict.fromkeys(_line(source, path, message) for path, message in found))


def _line(source: Source, path: KeyPath, message: str) -> str:
    dotted = ".".join(str(p) for p in path)
    where = source.where(path)
    message = own_code.shown(message)
    if where == f"--{dotted}":
        return f"{where}: {message}"
    return f"{where} {own_code.shown(dotted)}: {message}"


def _keys_at(path: KeyPath) -> list[str]:
    """The keys the schema knows below `path`."""
    model: Any = SearchConfig
    for part in path:
        if isinstance(part, int):
            continue  # an item of a list has the keys of all items
        field = model.model_fields.get(str(part)) if _is_model(model) else None
        if field is None:
            model = Limit if path[0] == "limits" else None
            break
        model = next(
            (t for t in (field.annotation, *get_args(field.annotation)) if _is_model(t)), None
        )
    return list(model.model_fields) if _is_model(model) else []


def _short_at(path: KeyPath) -> str:
    """What a single value at `path` may stand for; '' where it may not."""
    known = ("limits", "*") if path[:1] == ("limits",) and len(path) == 2 else path
    return _SHORT.get(tuple(map(str, known)), "")


def _is_model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)
