"""What a selector is: an order in which layers turn binary; and the budget rules that stop it
(methods.md 4.4, 4.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trainables.cost import CostTable
from trainables.registry import Registry, UserError

RULES = ("at_least", "nearest")


class Selector:
    """Ranks the layers of a network, first to be binarized first."""

    name: ClassVar[str]
    doc: ClassVar[str]

    def order(self, table: CostTable, seed: int) -> Sequence[int]:
        raise NotImplementedError


SELECTORS: Registry[type[Selector]] = Registry("selector")


def plan_for_budget(
    table: CostTable,
    order: Sequence[int],
    budget_pct: float,
    rule: str = "at_least",
    level: str = "B",
) -> str:
    """Binarize along `order` towards `budget_pct` of the full-precision flops.

    at_least stops before the remaining flops fall below the budget; nearest goes on while the
    next layer brings them closer to it.
    """
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
