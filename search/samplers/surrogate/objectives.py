"""Several objectives as one quality and one cost, by weights that are drawn for every ask. The
limits on costs are here too; candidates and the model are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitfront.search.samplers.problem import Problem
from bitfront.search.samplers.surrogate.atlas import Codes, Context
from bitfront.search.samplers.surrogate.model import Floats


@dataclass(frozen=True)
class Scalar:
    """Weights that make one quality (more is better) and one cost (less is better) of all
    objectives. Where there are several of a kind their weights are drawn at every ask, so that
    over a search every trade-off between them is looked for (random scalarization)."""

    quality: Floats
    """of the measured objectives; negative where less is better"""
    cost: Floats
    """of the costs in `Objectives.names`, in units of the reference point"""


class Objectives:
    """The objectives and limits of a problem as one ask sees them."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._limits = problem.limits
        self._reference = dict(
            zip([o.name for o in problem.objectives], problem.reference, strict=True)
        )
        self.measured = [o for o in problem.objectives if o.name not in problem.cost_names]
        self.priced = [o for o in problem.objectives if o.name in problem.cost_names]
        objectives = [o.name for o in self.priced]
        self.names = objectives + [n for n in problem.limits if n not in objectives]
        """the costs that are optimized, then those that are only limited"""
        self.scalar = self._weights(rng)
        self.single = len(self.measured) == 1 and len(self.priced) <= 1
        """whether the weights are the same at every ask"""

    def _weights(self, rng: np.random.Generator) -> Scalar:
        """Weights from the flat Dirichlet distribution where there is more than one."""

        def drawn(count: int) -> Floats:
            return rng.dirichlet(np.ones(count)) if count > 1 else np.ones(count)

        cost = np.zeros(len(self.names))
        share = drawn(len(self.priced))
        for i, objective in enumerate(self.priced):
            sign = -1.0 if objective.maximize else 1.0
            cost[i] = sign * share[i] / (abs(self._reference[objective.name]) or 1.0)
        signs = np.array([1.0 if o.maximize else -1.0 for o in self.measured])
        return Scalar(signs * drawn(len(self.measured)), cost)

    def worst(self) -> tuple[float, float]:
        """Quality and cost of the reference point."""
        quality = float(self.scalar.quality @ [self._reference[o.name] for o in self.measured])
        at_reference = np.zeros(len(self.names))
        for i, objective in enumerate(self.priced):
            at_reference[i] = self._reference[objective.name]
        return quality, float(self.scalar.cost @ at_reference) if self.priced else 1.0

    def feasible(self, costs: Floats) -> NDArray[np.bool_]:
        """Which rows of (plans, costs) satisfy all limits."""
        fine = np.ones(len(costs), dtype=bool)
        for name, limit in self._limits.items():
            column = costs[:, self.names.index(name)]
            if limit.max is not None:
                fine &= column <= limit.max
            if limit.min is not None:
                fine &= column >= limit.min
        return fine

    def repaired(self, context: Context, codes: Codes, rng: np.random.Generator) -> Codes:
        """The plans, changed so that they satisfy the limits: where one is broken, groups in random
        order are moved to the cheapest (or dearest) level until it holds. Plans for which that
        does not help are left out."""
        if not self._limits or not len(codes):
            return codes
        codes = codes.copy()
        for name, limit in self._limits.items():
            column = self.names.index(name)
            price = context.deltas[:, :, column] if context.groups else np.zeros((0, 1))
            for i in range(len(codes)):
                total = float(context.costs(codes[i : i + 1])[0, column])
                for g in rng.permutation(len(context.groups)):
                    over = limit.max is not None and total > limit.max
                    under = limit.min is not None and total < limit.min
                    if not over and not under:
                        break
                    target = int(price[g].argmin() if over else price[g].argmax())
                    moved = total + float(price[g, target] - price[g, codes[i, g]])
                    if over and limit.min is not None and moved < limit.min:
                        continue
                    if under and limit.max is not None and moved > limit.max:
                        continue
                    codes[i, g], total = target, moved
        return codes[self.feasible(context.costs(codes))]
