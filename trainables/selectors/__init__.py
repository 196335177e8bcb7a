"""Selectors: algorithms that make a plan for a budget."""

from trainables.selectors.base import RULES, SELECTORS, Selector, plan_for_budget
from trainables.selectors.fixed import Front, Random, Rear

__all__ = ["RULES", "SELECTORS", "Front", "Random", "Rear", "Selector", "plan_for_budget"]
