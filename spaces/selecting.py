"""The selectors of a space: what they need to run, and the plans and trials of their choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bitfront.spaces.drawing import ends
from bitfront.trainables.cost import CostTable
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Value
from bitfront.trainables.selectors import SELECTORS, Selection, SelectionSpec
from bitfront.trainables.task import Task, with_overrides

if TYPE_CHECKING:
    from bitfront.spaces.space import Space

WHOLE = 100.0


@dataclass(frozen=True)
class Selecting:
    """The selectors of a space and their parameters. Trained selectors use a network that is
    trained on the task with the keys of `trained_on` replaced, for example another dataset."""

    names: tuple[str, ...]
    params: Mapping[str, Value] = field(default_factory=dict)
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    level: str = "B"

    def params_of(self, name: str) -> dict[str, Value]:
        declared = SELECTORS.get(name).params
        return {key: value for key, value in self.params.items() if key in declared}

    def task(self, task: Task) -> Task:
        if not self.trained_on:
            return task
        changed = with_overrides(task, dict(self.trained_on))
        if DATASETS.runs_code(changed.dataset):  # looking at a search must run none
            raise UserError(f"{changed.dataset}: a selector is trained on data that have a name")
        dataset = DATASETS.settle(changed.dataset, changed.data_dir)
        return changed.model_copy(update={"dataset": dataset})

    def specs(self, space: Space, seed: int) -> dict[str, SelectionSpec]:
        """The specs of the selections that need a trained network, by name of the selector; empty
        where no method of the space has binary layers."""
        planned = [str(m) for m in space.method.values if METHODS.get(str(m)).levels != "F"]
        if not planned:
            return {}
        method = planned[0]
        domains = space.method_params.get(method, {})
        return {
            name: SelectionSpec(
                selector=name,
                params=self.params_of(name),
                task=self.task(space.task),
                method=method,
                method_params={k: ends(d)[0] for k, d in domains.items() if d.size == 1},
                level=self.level,
                seed=seed,
            )
            for name in self.names
            if SELECTORS.get(name).trained
        }

    def waiting(self, selections: Mapping[str, Selection]) -> set[str]:
        """The names of the selectors that must train a network and are not among these results."""
        return {name for name in self.names if SELECTORS.get(name).trained} - set(selections)

    def plan(
        self,
        name: str,
        selections: Mapping[str, Selection],
        table: CostTable,
        budget: float,
        rule: str,
        seed: int,
    ) -> str:
        """The plan of a selector for a budget. In place of a trained selector that has not run yet,
        for example in a preview, the selector `first` is used: the costs of its plan are nearly the
        same."""
        if name in selections:
            return selections[name].plan(table, budget, rule, self.level, seed)
        waits = SELECTORS.get(name).trained and SELECTORS.get(name).method is None
        made = SELECTORS.get("first" if waits else name)({} if waits else self.params_of(name))
        order = range(len(table.plan_layers)) if made.trained else made.order(table, seed)
        return made.plan(table, order, budget, rule, self.level, seed)

    def training(
        self, name: str, selections: Mapping[str, Selection], task: Task, budget: float, seed: int
    ) -> tuple[str, dict[str, Value]] | None:
        """(method, its parameters) of a selector whose choice is no plan but channels to remove;
        None: the methods of the space train its plan."""
        selector = SELECTORS.get(name)
        if selector.method is None or budget >= WHOLE:
            return None
        made = selector(self.params_of(name))
        return selector.method, made.settings(task, selections.get(name), budget, seed)
