"""The base class of selectors, which rank layers in the order in which they are made binary, and
the budget rules that say how far a plan follows this order (docs/methods.md 4.4, 4.8). Selectors
that use a trained network are declared like the others; what they compute is in `scores`."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from bitfront.trainables.cost import CostTable
from bitfront.trainables.data import dataset_title
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.own_code import shown
from bitfront.trainables.papers import citation, paper_of
from bitfront.trainables.parameters import Param, Value, resolve, without_later
from bitfront.trainables.registry import Registry
from bitfront.trainables.settings import Strict
from bitfront.trainables.task import Task

if TYPE_CHECKING:
    from bitfront.trainables.selectors.scores.scoring import Scoring

RULES = ("at_least", "nearest")
# Increased whenever a selector with the same parameters would choose differently.
VERSION = 1

Note = Callable[[str], None]


@dataclass(frozen=True)
class Ranking:
    """The order in which layers are made binary, the scores of the layers it follows from, and the
    name of that score."""

    order: Sequence[int]
    scores: Sequence[float] = ()
    score: str = ""
    channels: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """the scale of every channel by layer, for a selector that removes channels"""
    pairs: Sequence[Sequence[float]] = ()
    """the damage of layers (the diagonal) and of pairs of them (above it), for a selector whose
    plans follow no order"""


class Selector:
    """Ranks the layers of a network, the first to be made binary first. One order serves all
    budgets: in the plan for a budget, layers from the beginning of the order are binary."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    """former names, which YAML files and ledgers may still contain"""
    doc: ClassVar[str]
    paper: ClassVar[str] = ""
    """the key of one of `trainables.papers`; '' where no paper is known"""
    params: ClassVar[dict[str, Param]] = {}
    trained: ClassVar[bool] = False
    """Whether it uses a network that is trained first."""
    method: ClassVar[str | None] = None
    """The method that trains what it chooses, where that is no plan for the methods of a space."""

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        self.values: dict[str, Value] = resolve(self.name, self.params, given or {})

    def order(self, table: CostTable, seed: int) -> Sequence[int]:
        """The order, for a selector that uses no network."""
        raise NotImplementedError(f"{self.name} ranks trained networks")

    def rank(self, scoring: Scoring) -> Ranking:
        """The order and its scores, for a selector that uses trained networks."""
        return Ranking(self.order(scoring.table, scoring.spec.seed))

    def plan(
        self,
        table: CostTable,
        order: Sequence[int],
        budget_pct: float,
        rule: str = "at_least",
        level: str = "B",
        seed: int = 0,
        pairs: Sequence[Sequence[float]] = (),
    ) -> str:
        """The plan for a budget in percent of the flops; `pairs` are those of its ranking."""
        return plan_for_budget(table, order, budget_pct, rule, level)

    def settings(
        self, task: Task, selection: Selection | None, budget_pct: float, seed: int
    ) -> dict[str, Value]:
        """The parameters of its `method` that stand for its choice; made-up ones of the same cost
        where it has not run."""
        raise NotImplementedError(f"{self.name} has no method of its own")

    @classmethod
    def describe(cls) -> dict[str, Any]:
        return {
            "name": cls.name,
            "doc": cls.doc,
            "paper": citation(cls.paper),
            "link": found.link or None if (found := paper_of(cls.paper)) else None,
            "trained": cls.trained,
            "params": {name: param.describe() for name, param in cls.params.items()},
        }


SELECTORS: Registry[type[Selector]] = Registry("selector", package=__package__)


class SelectionSpec(Strict):
    """Everything an order depends on: the selector, and the training of the network it uses."""

    selector: str
    params: dict[str, Value] = Field(default_factory=dict)
    task: Task
    method: str = "bnn"
    method_params: dict[str, Value] = Field(default_factory=dict)
    level: str = "B"
    seed: int = 0

    def fingerprint(self) -> str:
        content = self.model_dump(mode="json")
        # Paths make no difference; a checkpoint is identified by its sha256.
        content["task"].pop("data_dir")
        content["task"]["pretrain"].pop("checkpoint")
        content["task"].pop("metrics")
        content["params"] = self.build().values
        method = METHODS.get(self.method)(dict(self.method_params))
        content["method_params"] = without_later(method.params, method.values)
        text = json.dumps([VERSION, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file_name(self) -> str:
        """The name of the selector as part of the name of a file."""
        return re.sub(r"[^\w.-]+", "-", shown(self.selector))

    def build(self) -> Selector:
        return SELECTORS.get(self.selector)(self.params)


class Selection(Strict):
    """The result of a selector: its order, and the training and time it took."""

    spec: SelectionSpec
    layers: list[str]
    order: list[int]
    """indices of layers, the first to be binarized first"""
    scores: list[float] = Field(default_factory=list)
    """one number per layer, in the order of the layers; empty where the selector has none"""
    score: str = ""
    """what the numbers are"""
    channels: dict[str, list[float]] = Field(default_factory=dict)
    """the scale of every channel by layer, of a selector that removes channels"""
    pairs: list[list[float]] = Field(default_factory=list)
    """the damage of layers and of pairs of them, of a selector whose plans follow no order"""
    training_epochs: float = 0.0
    """over all networks: pretraining and everything else that was trained"""
    scored_examples: int = 0
    """examples passed through a network to score it"""
    seconds: float = 0.0

    def plan(
        self,
        table: CostTable,
        budget_pct: float,
        rule: str = "at_least",
        level: str = "B",
        seed: int = 0,
    ) -> str:
        """The plan for a budget in percent of the flops of the table's network."""
        if len(table.plan_layers) != len(self.order):
            raise UserError(
                f"{shown(self.spec.selector)} ranked {len(self.order)} layers, the network has "
                f"{len(table.plan_layers)}"
            )
        selector = self.spec.build()
        if self.pairs:
            return selector.plan(table, self.order, budget_pct, rule, level, seed, self.pairs)
        return selector.plan(table, self.order, budget_pct, rule, level, seed)

    def summary(self) -> str:
        """One line about the training, examples and time the selection took."""
        return (
            f"{shown(self.spec.selector)} on {dataset_title(self.spec.task.dataset)}: "
            f"{self.training_epochs:g} epochs of training, {self.scored_examples:,} examples "
            f"scored, {self.seconds:.0f} s"
        )


def plan_for_budget(
    table: CostTable,
    order: Sequence[int],
    budget_pct: float,
    rule: str = "at_least",
    level: str = "B",
) -> str:
    """The plan that makes layers binary along `order` until `budget_pct` of the full-precision
    flops is reached (docs/methods.md 4.4, 4.8).

    at_least stops before the flops fall below the budget; nearest continues while the next layer
    brings them closer to it. The flops fall along the order, so that the opposite direction, from
    all binary to full precision along the reversed order, would stop at the same plan."""
    if rule not in RULES:
        raise UserError(f"unknown budget rule '{rule}', one of: {', '.join(RULES)}")
    letters = ["F"] * len(table.plan_layers)
    now = table.totals("".join(letters))["flops_pct"]
    for index in order:
        letters[index] = level
        then = table.totals("".join(letters))["flops_pct"]
        stop = (
            then < budget_pct
            if rule == "at_least"
            else abs(then - budget_pct) >= abs(now - budget_pct)
        )
        if stop:
            letters[index] = "F"
            break
        now = then
    return "".join(letters)


def flops_saved(table: CostTable, level: str) -> list[float]:
    """The flops that are saved when one layer alone is at `level`, for each layer, in percent of
    the full-precision flops."""
    n = len(table.plan_layers)
    return [
        100.0 - table.totals("F" * i + level + "F" * (n - 1 - i))["flops_pct"] for i in range(n)
    ]


def ascending(values: Sequence[float]) -> list[int]:
    """Indices from the smallest value to the greatest; ties in the order of the layers, NaN
    last."""
    return sorted(range(len(values)), key=lambda i: (math.isnan(values[i]), values[i], i))
