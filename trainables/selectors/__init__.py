"""Selectors: algorithms that make a plan for a budget. A new file in this folder is found by
itself. Listing selectors does not import torch; what looks at a network is in `scores`."""

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
    "plan_for_budget",
    "select",
]
