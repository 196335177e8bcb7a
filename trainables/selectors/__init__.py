"""Selectors: algorithms that make a plan for a budget. Importing this package registers them all,
without torch: what looks at a network is imported when it does."""

from bitfront.trainables.selectors import fixed, mixbin, rivals
from bitfront.trainables.selectors.base import (
    RULES,
    SELECTORS,
    Selection,
    SelectionSpec,
    Selector,
    plan_for_budget,
)
from bitfront.trainables.selectors.selection import select

__all__ = [
    "RULES",
    "SELECTORS",
    "Selection",
    "SelectionSpec",
    "Selector",
    "fixed",
    "mixbin",
    "plan_for_budget",
    "rivals",
    "select",
]
