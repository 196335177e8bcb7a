"""The points of a front as figures, tables and the terminal show them, and the words of their axes.
Plain data: `figure_data.py` makes them from the results of a search, `dashboards` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict


@dataclass(frozen=True)
class FrontPoint:
    """One point: all finished trials with the same setting, which differ in their seeds."""

    trial: str
    """the id of the first of its trials"""
    method: str
    plan: str
    accuracy: float
    """mean over its seeds of the quality that `Labels` names; a fraction where `share` is set"""
    cost: float
    cost_pct: float | None
    """percent of the dearest full-precision network of the search"""
    on_front: bool
    extra: dict[str, str] = field(default_factory=dict)
    """further numbers as text, by the heading of their column"""
    settings: dict[str, str] = field(default_factory=dict)
    """the other sampled settings, besides method and plan: short names, rounded values"""
    drawn: dict[str, Any] = field(default_factory=dict)
    """the same settings with full names and exact values"""
    seeds: int = 1
    """how many trials `accuracy` is the mean of"""
    spread: float | None = None
    """standard deviation of the quality over its seeds, in the unit of `accuracy`"""

    @property
    def summary(self) -> str:
        """Trial, method, settings and plan in one line."""
        settings = (f"{name}={text}" for name, text in self.settings.items())
        return " ".join([self.trial, self.method, *settings, self.plan])


class Labels(TypedDict, total=False):
    """The optional words and lines of a picture of the front."""

    methods: Sequence[str]
    """their order fixes their colours"""
    accuracy_label: str
    cost_label: str
    share: bool
    """the quality is a fraction and shown in percent"""
    maximize: bool
    """a higher quality is better"""
    reference: tuple[float, float] | None
    """(quality, cost in the unit of the cost axis)"""
    budgets: Sequence[tuple[str, float]]
    """(name, cost in the unit of the cost axis)"""
