"""Two searches side by side: from one reference point, budget by budget, and on a joint front. How
it is printed is in `bitfront.terminal.comparisons`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitfront.search.front import (
    Front,
    Objective,
    best_under_budget,
    hypervolume,
    hypervolume_share,
)
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import Results, ideal_point
from bitfront.trainables.data import dataset_title
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import shown

BUDGETS = (100, 80, 60, 40, 20, 10)


def epochs_of(results: Results) -> list[int]:
    """The fewest and the most epochs of a trial, which a space may draw."""
    found = [entry.spec.task.epochs for entry in results.entries]
    return [min(found), max(found)]


def _span(ends: list[int]) -> str:
    low, high = ends
    return f"{low}" if low == high else f"{low} to {high}"


def _data(results: Results) -> str:
    return dataset_title(results.config.task.dataset)


def _subset(results: Results) -> str:
    return "all" if (subset := results.config.task.subset) is None else f"{subset:,}"


def _listed(results: Results) -> str:
    return ", ".join(f"{name} {mode}" for name, mode in results.config.objectives.items())


@dataclass
class Comparison:
    """Two searches with the same objectives, measured from one reference point."""

    a: Results
    b: Results

    def __post_init__(self) -> None:
        if self.a.config.objectives != self.b.config.objectives:
            raise UserError(
                f"'{self.a.config.name}' and '{self.b.config.name}' have different objectives: "
                f"{_listed(self.a)}; {_listed(self.b)}",
                "only searches with the same objectives have comparable fronts; to see one: "
                f"bitfront front {self.a.config.name}",
            )
        for results in (self.a, self.b):
            if not results.entries:
                raise UserError(f"search '{results.config.name}' has no trial to compare yet")
        self.b = self.b.in_order(self.a.config.objectives)

    @property
    def objectives(self) -> list[Objective]:
        """The objectives of both."""
        return self.a.config.front_objectives

    @property
    def reference(self) -> list[float]:
        """The worse of both references in every objective, so that the points of both searches
        count."""
        pairs = zip(self.objectives, self.a.reference, self.b.reference, strict=True)
        return [min(x, y) if o.maximize else max(x, y) for o, x, y in pairs]

    def on_joint_front(self, results: Results) -> int:
        """How many points of one of the fronts are on the front of both. A point that both found
        counts for both."""
        joint = Front(self.objectives)
        for side, of in (("a", self.a), ("b", self.b)):
            for entry in of.front:  # the same trial may be in both, with other values
                joint.add(f"{side}/{entry.id}", entry.values or [])
        best = {values for _, values in joint.items}
        return sum(tuple(entry.values or []) in best for entry in results.front)

    @property
    def full_flops(self) -> float | None:
        """The flops of the dearest full-precision network of both, the reference of budgets; None
        where neither has a trial."""
        known = [results.full_flops for results in (self.a, self.b) if results.entries]
        return max(known, default=None)

    def best_at(self, results: Results, budget: float) -> float | None:
        """The best quality within a budget, in percent of `full_flops`; None where none fits."""
        if self.full_flops is None:
            return None
        points, both = results.quality_and("flops")
        index = best_under_budget(points, both, self.full_flops * budget / 100)
        return None if index is None else points[index][0]

    @property
    def cautions(self) -> list[str]:
        """What differs between the searches and may be the reason for a difference of their fronts:
        a sentence each."""
        a, b = self.a, self.b
        pairs = {
            "epochs per trial": (_span(epochs_of(a)), _span(epochs_of(b))),
            "data": (_data(a), _data(b)),
            "examples (task.subset)": (_subset(a), _subset(b)),
        }
        return [
            f"A and B differ in their {what}, {x} and {y}: a difference between their fronts may "
            "come from that"
            for what, (x, y) in pairs.items()
            if x != y
        ]

    def as_json(self) -> dict[str, Any]:
        """The comparison as `bitfront compare --json` prints it."""
        ideal = ideal_point(self.a.config)
        sides = {}
        for side, results in (("a", self.a), ("b", self.b)):
            values = results.front_values
            sides[side] = {
                "search": results.config.name,
                "dataset": dataset_title(results.config.task.dataset),
                "model": shown(results.config.task.model.name),
                "epochs": epochs_of(results),
                "trials": results.counts()[TrialState.COMPLETE],
                "front": len(results.front),
                "hypervolume": hypervolume(values, self.reference, self.objectives),
                "hypervolume_share": hypervolume_share(
                    values, self.reference, ideal, self.objectives
                ),
                "on_joint_front": self.on_joint_front(results),
                "best_under_budget": {str(b): self.best_at(results, b) for b in BUDGETS},
            }
        return {
            "objectives": dict(self.a.config.objectives),
            "reference": dict(zip(self.a.config.objectives, self.reference, strict=True)),
            "full_flops": self.full_flops,
            "cautions": self.cautions,
            **sides,
        }
