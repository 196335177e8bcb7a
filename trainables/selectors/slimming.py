"""Network slimming as a selector: it chooses channels to remove in place of layers to make binary
(docs/methods.md 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from bitfront.trainables.cost import CostTable
from bitfront.trainables.methods.slimming import PENALTY
from bitfront.trainables.parameters import Value
from bitfront.trainables.selectors import scores
from bitfront.trainables.selectors.base import SELECTORS, Ranking, Selection, Selector
from bitfront.trainables.task import Task

if TYPE_CHECKING:
    from bitfront.trainables.selectors.scores.scoring import Scoring


@SELECTORS.register
class Slimming(Selector):
    name = "slimming"
    paper = "slimming"
    doc = "network slimming: remove channels of small batch-norm scales from a network of F layers"
    trained = True
    method = "slimming"
    params: ClassVar = {"penalty": PENALTY}

    def rank(self, scoring: Scoring) -> Ranking:
        scales = scores.channel_scales(scoring, float(self.values["penalty"]))
        names = [layer.name for layer in scoring.table.plan_layers]
        means = [sum(scales[n]) / len(scales[n]) if n in scales else 0.0 for n in names]
        return Ranking(range(len(names)), means, "mean scale of its channels", scales)

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
        """Every layer in full precision, without channels where the budget asks for it."""
        return ("F" if budget_pct >= 100.0 else "S") * len(table.plan_layers)

    def settings(
        self, task: Task, selection: Selection | None, budget_pct: float, seed: int
    ) -> dict[str, Value]:
        scales = selection.channels if selection is not None else {}
        seed = seed if selection is None else selection.spec.seed
        channels = scores.channels_within(task, scales, budget_pct, seed)
        return {**self.values, "channels": channels, "sparse_seed": seed}
