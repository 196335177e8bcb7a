"""`bf.Search` and `bf.run`: a search described in Python goes through the same checks as one in a
YAML, and runs as `bitfront run` runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.api.by_value import dataset_of, reference_to
from bitfront.api.opened import OpenedSearch
from bitfront.api.turns import take_turn
from bitfront.search.config.checks.device import IN_PYTHON, levels
from bitfront.search.config.load import load, load_data
from bitfront.search.config.schema import SearchConfig, SearchSpec
from bitfront.search.ledger.folder import home
from bitfront.search.measuring import (
    Measuring,
    called,
    different_networks,
    measure_here,
    table_of,
)
from bitfront.spaces.ready_made import search_file
from bitfront.spaces.space import Space
from bitfront.trainables.costs import devices
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.runtime.machine import cpu_name
from bitfront.trainables.task import Task
from bitfront.trainables.text_files import dump_yaml

if TYPE_CHECKING:
    from bitfront.search.session.preview import Preview

# What a plan decides together; any other text is a plan itself.
GROUPS = ("layer", "block", "stage", "model")
# Arguments with a place of their own in a YAML.
_SECTIONS = {
    **dict.fromkeys(Task.model_fields, "task"),
    **dict.fromkeys(SearchSpec.model_fields, "search"),
    **dict.fromkeys(SearchConfig.model_fields, ""),
}


class Search:
    """A search that has not been run: a network, data, methods, what may change and what is wanted.

    Every key of a search YAML is an argument: those of `task` and `search` directly (`epochs=20`,
    `sampler="random"`), further ranges as `space={"optimizer.lr": {"float": [1e-4, 1e-2]}}`.
    """

    def __init__(
        self,
        model: str | Mapping[str, Any] | Callable[..., Any],
        data: Any,
        methods: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = "bnn",
        plan: str | Mapping[str, Any] = "layer",
        levels: str = "FB",
        objectives: Mapping[str, str] | None = None,
        trials: int | None = None,
        name: str = "search",
        home: str | os.PathLike[str] | None = None,
        **more: Any,
    ) -> None:
        self.home = _home(home)
        if not isinstance(objectives, Mapping | None):
            raise UserError(
                f"objectives: {type(objectives).__name__} says not what is better",
                "objectives={'val_accuracy': 'max', 'flops': 'min'}",
            )
        given = {"objectives": dict(objectives)} if objectives is not None else {}
        self._data: dict[str, Any] = {"name": name, "task": {}, "space": {}, "search": {}, **given}
        self._take(more)
        task, space = self._data["task"], self._data["space"]
        task["model"] = self._model(model)
        task["dataset"] = dataset_of(data, self.home)
        listed: list[Any] = [methods]
        if isinstance(methods, Iterable) and not isinstance(methods, str):
            listed = list(methods)
        space.setdefault("method", [reference_to(m, "methods", self.home) for m in listed])
        space.setdefault("plan", _plan(plan, levels))
        if trials is not None:
            self._data["search"]["trials"] = trials

    def _take(self, more: Mapping[str, Any]) -> None:
        """Put further arguments where a YAML has them."""
        for key, value in more.items():
            if key not in _SECTIONS:
                known = {*_SECTIONS, "model", "data", "methods", "plan", "levels"}
                raise UserError(f"Search: unknown argument '{key}', {did_you_mean(key, known)}")
            section = _SECTIONS[key]
            if not section and isinstance(value, Mapping) and isinstance(self._data.get(key), dict):
                self._data[key] |= value
            else:
                (self._data[section] if section else self._data)[key] = value

    def _model(self, model: str | Mapping[str, Any] | Callable[..., Any]) -> dict[str, Any]:
        if isinstance(model, Mapping):
            if "name" not in model:
                raise UserError("model: a dict names the network", "model={'name': MyNet, ...}")
            return {**model, "name": reference_to(model["name"], "model", self.home)}
        return {"name": reference_to(model, "model", self.home)}

    def yaml(self) -> str:
        """The search as the text of a YAML file."""
        return dump_yaml(self._data)

    def load(self) -> tuple[SearchConfig, Space]:
        """The checked configuration and the space; a UserError for what is wrong with it."""
        devices.look_in(self.home)
        return load_data(self._data, IN_PYTHON)

    def validate(self) -> None:
        """Raise a UserError for what is wrong with the search; nothing is started."""
        self.load()

    def preview(self, timed: bool = True) -> Preview:
        """How many points the search has, what they cost and, with `timed`, how long it takes."""
        from bitfront.search.session.preview import preview_search

        return preview_search(*self.load(), timed=timed)

    def bench(
        self, seconds: float = 20.0, batch: int = 1, threads: int = 1, out: str | None = None
    ) -> Path:
        """Measure the networks of the search on this machine, write their device table and return
        its file: `latency_ms` may be an objective or a limit then."""
        from bitfront.trainables.runtime.planned import Subject

        _, space = load_data(self._data, IN_PYTHON, timed=False)
        tasks = different_networks(space, IN_PYTHON)
        subjects = [(called(t.model.name, t.model.params), Subject.of(t)) for t in tasks]
        table, path = table_of(cpu_name(), threads, batch, self.home, out)
        work = Measuring(subjects, levels(space.plan), batch, threads, seconds)
        _, found = measure_here(work, lambda _text: None)
        table.with_networks(found).write(path)
        return path

    def run(
        self,
        address: str | None = None,
        quiet: bool = False,
        ledger: str | None = None,
        rows: str | Sequence[str] | None = None,
    ) -> OpenedSearch:
        """Run the trials that are left, and return the search with its results. An interrupt ends
        it with a KeyboardInterrupt; the same call continues it. `rows`: labels or patterns of rows
        of `paper`, which are run alone."""
        config, space = self.load()
        listed = _listed(rows)
        return OpenedSearch(take_turn(config, space, self.home, address, quiet, ledger, listed))

    def __repr__(self) -> str:
        task = self._data["task"]
        return f"<bf.Search {self._data['name']}: {task['model']['name']} on {task['dataset']}>"


def run(
    search: str | os.PathLike[str] = "quickstart",
    home: str | os.PathLike[str] | None = None,
    address: str | None = None,
    quiet: bool = False,
    rows: str | Sequence[str] | None = None,
    **changes: Any,
) -> OpenedSearch:
    """Run the search of a YAML file, or a ready-made one by name, and return it with its results.
    `rows`: labels or patterns of rows of its paper, which are run alone.
    `changes`: keys that replace those of the file, with two underscores for the dot:
    `task__epochs=3`; `trials` and `name` stand for themselves."""
    short = {"trials": "search.trials"}
    name = changes.pop("name", None)
    assignments = [
        f"{short.get(key, key.replace('__', '.'))}={dump_yaml(value).strip()}"
        for key, value in changes.items()
    ]
    devices.look_in(_home(home))
    config, space = load(search_file(os.fspath(search)), assignments, name)
    turn = take_turn(config, space, _home(home), address, quiet, rows=_listed(rows))
    return OpenedSearch(turn)


def _listed(rows: str | Sequence[str] | None) -> list[str] | None:
    if rows is None:
        return None
    return [rows] if isinstance(rows, str) else list(rows)


def _home(given: str | os.PathLike[str] | None) -> Path:
    return home(given)


def _plan(plan: str | Mapping[str, Any], levels: str) -> Any:
    """`space.plan` as a YAML has it."""
    if isinstance(plan, Mapping):
        return dict(plan)
    if plan.islower() and plan.isalpha() and plan not in GROUPS:
        raise UserError(f"plan: {quoted(plan)} is no plan, {did_you_mean(plan, GROUPS)}")
    return {"per": plan, "levels": list(levels)} if plan in GROUPS else plan
