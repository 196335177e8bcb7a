"""The selector with terms of pairs of layers (docs/methods.md 4.5): what is lost by two layers that
are binary together is not what they lose alone. Its losses are computed in `scores`, its plans in
`quadratic`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from bitfront.trainables.cost import CostTable
from bitfront.trainables.parameters import Choice, Int, Param
from bitfront.trainables.selectors import scores
from bitfront.trainables.selectors.base import (
    SELECTORS,
    Ranking,
    Selector,
    flops_saved,
    plan_for_budget,
)
from bitfront.trainables.selectors.quadratic import grown, least_damage

if TYPE_CHECKING:
    from bitfront.trainables.selectors.scores.scoring import Scoring

# The budgets for which it is said how far a plan may be from the best one.
TOLD = (80.0, 60.0, 40.0, 20.0, 10.0)


@SELECTORS.register
class Clado(Selector):
    name = "clado"
    paper = "clado"
    doc = "losses of single layers and of pairs, and the plan of least sum for each budget"
    trained = True
    params: ClassVar = {
        "pairs": Param(True, Choice((True, False)), "terms of pairs; without them a knapsack"),
        "examples": Param(1000, Int(16, 1_000_000), "training examples a loss is computed on"),
    }

    def rank(self, scoring: Scoring) -> Ranking:
        pairs = scores.pair_losses(
            scoring, int(self.values["examples"]), together=bool(self.values["pairs"])
        )
        saved = flops_saved(scoring.table, scoring.spec.level)
        for budget in TOLD:
            found = least_damage(pairs, saved, *window(saved, budget, "nearest"))
            if found is not None and not found.exact:
                scoring.note(
                    f"plan for {budget:g} %: at most {found.gap:.3g} above the least damage "
                    f"({found.damage:.3g}); too many layers to try every plan"
                )
        alone = [row[i] for i, row in enumerate(pairs)]
        return Ranking(grown(pairs, saved), alone, "change of the loss", pairs=pairs)

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
        """The plan of least damage whose flops are as near to the budget as half an average layer
        (`nearest`), or at most an average layer above it (`at_least`); along the order where none
        is."""
        greedy = plan_for_budget(table, order, budget_pct, rule, level)
        if not pairs:
            return greedy
        saved = flops_saved(table, level)
        found = least_damage(pairs, saved, *window(saved, budget_pct, rule))
        if found is None:
            return greedy
        return "".join(level if i in found.binary else "F" for i in range(len(saved)))


def window(saved: Sequence[float], budget: float, rule: str) -> tuple[float, float]:
    """The least and the greatest flops in percent of a plan that meets a budget."""
    layer = sum(saved) / max(1, len(saved))
    if rule == "at_least":
        return budget, budget + layer
    return budget - layer / 2, budget + layer / 2
