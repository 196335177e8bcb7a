"""Selectors: algorithms that make a plan for a budget. New files in this folder are imported
automatically. Listing selectors does not import torch; code that runs a network is in `scores`."""

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
