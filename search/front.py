"""The mathematics of fronts: dominance, hypervolume, knee and budgets, on plain numbers.

No trial, study or figure is known here, and nothing heavy is imported: the CLI loads this first.
"""

import bisect
import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Values = tuple[float, ...]


@dataclass(frozen=True)
class Objective:
    """One axis of a front. By convention the first objective is quality, the last one cost."""

    name: str
    maximize: bool

    @property
    def sign(self) -> int:
        """Factor that turns a value into a loss, which is always minimised."""
        return -1 if self.maximize else 1


def dominates(a: Sequence[float], b: Sequence[float], objectives: Sequence[Objective]) -> bool:
    """Whether `a` is at least as good as `b` in every objective and better in one.

    A point with a NaN dominates nothing and is dominated by every point without one.
    """
    la, lb = _losses(a, objectives), _losses(b, objectives)
    if _has_nan(la):
        return False
    if _has_nan(lb):
        return True
    return la != lb and _covers(la, lb)


def non_dominated(points: Sequence[Sequence[float]], objectives: Sequence[Objective]) -> list[int]:
    """Indices of the front, ascending. Of equal points only the first is kept; NaN never is."""
    losses = [_losses(point, objectives) for point in points]
    return sorted(_front(losses))


def layers(points: Sequence[Sequence[float]], objectives: Sequence[Objective]) -> list[list[int]]:
    """Indices by layers: the front, the front of what is left without it, and so on. Equal points
    are in layers after one another, NaN in none."""
    losses = [_losses(point, objectives) for point in points]
    left = [i for i, loss in enumerate(losses) if not _has_nan(loss)]
    if len(objectives) <= 2:
        return _layers_2d(losses, left)
    found = []
    while left:
        members = {left[k] for k in _front([losses[i] for i in left])}
        found.append(sorted(members))
        left = [i for i in left if i not in members]
    return found


def _layers_2d(losses: Sequence[Values], left: list[int]) -> list[list[int]]:
    """In lexicographic order a point belongs to the first layer whose last member does not cover
    it; the last losses of these members never fall from layer to layer."""
    found: list[list[int]] = []
    last: list[float] = []
    for i in sorted(left, key=lambda i: (losses[i], i)):
        layer = bisect.bisect_right(last, losses[i][-1])
        if layer == len(found):
            found.append([])
            last.append(0.0)
        found[layer].append(i)
        last[layer] = losses[i][-1]
    return [sorted(layer) for layer in found]


def hypervolume(
    points: Iterable[Sequence[float]],
    reference: Sequence[float],
    objectives: Sequence[Objective],
) -> float:
    """Volume between the front of `points` and `reference`, in the objectives' own units.

    A point that is not better than the reference in every objective contributes nothing.
    """
    limit = _finite_losses(reference, objectives, "reference")
    return _volume([_losses(point, objectives) for point in points], limit)


def hypervolume_share(
    points: Iterable[Sequence[float]],
    reference: Sequence[float],
    ideal: Sequence[float],
    objectives: Sequence[Objective],
) -> float:
    """Hypervolume as a share of the box between `reference` and `ideal`.

    It exceeds 1 only where a point is better than the ideal."""
    limit = _finite_losses(reference, objectives, "reference")
    best = _finite_losses(ideal, objectives, "ideal")
    if not _strictly_better(best, limit):
        raise ValueError(
            f"the ideal {tuple(ideal)} must be better than the reference {tuple(reference)} "
            f"in every objective ({_names(objectives)})"
        )
    box = math.prod(r - i for r, i in zip(limit, best, strict=True))
    return hypervolume(points, reference, objectives) / box


def contributions(
    points: Sequence[Sequence[float]],
    reference: Sequence[float],
    objectives: Sequence[Objective],
) -> list[float]:
    """Exclusive hypervolume of each point: what would be lost if it alone were missing.

    Dominated points and points that have an equal twin contribute 0.
    """
    limit = _finite_losses(reference, objectives, "reference")
    losses = [_losses(point, objectives) for point in points]
    inside = [i for i, loss in enumerate(losses) if _strictly_better(loss, limit)]
    local = [losses[i] for i in inside]
    shares = _contributions_2d(local, limit) if len(limit) == 2 else _leave_one_out(local, limit)
    exclusive = [0.0] * len(losses)
    for i, share in zip(inside, shares, strict=True):
        exclusive[i] = share
    return exclusive


def knee(points: Sequence[Sequence[float]], objectives: Sequence[Objective]) -> int:
    """Index of the knee: the point beyond which a higher cost buys little quality.

    Objectives are normalised to [0, 1] over the front. Two objectives: the front point farthest
    above the line through both extremes (a front that nowhere rises above it has its knee at the
    cheap end). More objectives: the front point closest to the ideal. A front of one or two points:
    the best in the first objective. Ties: the cheaper."""
    losses = [_losses(point, objectives) for point in points]
    front = [i for i in sorted(_front(losses)) if all(map(math.isfinite, losses[i]))]
    if not front:
        raise ValueError("a knee needs at least one point with finite values")
    if len(front) <= 2:
        return min(front, key=lambda i: (losses[i][0], losses[i][-1]))

    columns = list(zip(*(losses[i] for i in front), strict=True))
    low = [min(column) for column in columns]
    span = [max(column) - min(column) or 1.0 for column in columns]

    def badness(i: int) -> float:
        unit = [(x - lo) / s for x, lo, s in zip(losses[i], low, span, strict=True)]
        # The extremes are (0, 1) and (1, 0): the signed distance to their line is (sum - 1) / √2.
        distance = (sum(unit) - 1) / math.sqrt(2) if len(unit) == 2 else math.hypot(*unit)
        return round(distance, 12)  # rounding noise must not decide between collinear points

    return min(front, key=lambda i: (badness(i), losses[i][-1]))


def best_under_budget(
    points: Sequence[Sequence[float]],
    objectives: Sequence[Objective],
    budget: float,
    cost_index: int = -1,
) -> int | None:
    """Index of the best point in the first objective with cost <= `budget`; ties: the cheaper."""
    losses = _losses_with_cost(points, objectives, cost_index)
    fitting = [i for i, loss in losses.items() if loss[cost_index] <= budget]
    return min(fitting, key=lambda i: (losses[i][0], losses[i][cost_index]), default=None)


def cheapest_reaching(
    points: Sequence[Sequence[float]],
    objectives: Sequence[Objective],
    minimum: float,
    cost_index: int = -1,
) -> int | None:
    """Index of the cheapest point whose first objective is at least as good as `minimum`.

    Ties: the better in the first objective.
    """
    losses = _losses_with_cost(points, objectives, cost_index)
    worst = objectives[0].sign * minimum
    reaching = [i for i, loss in losses.items() if loss[0] <= worst]
    return min(reaching, key=lambda i: (losses[i][cost_index], losses[i][0]), default=None)


class Front:
    """A front that grows point by point; points that it refuses are not stored.

    It equals `non_dominated` of everything added so far, in the order of adding."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        if not objectives:
            raise ValueError("a front needs at least one objective")
        self.objectives = tuple(objectives)
        self._members: list[_Member] = []  # cheapest first
        self._values: dict[str, Values] = {}

    def add(self, key: str, values: Sequence[float]) -> bool:
        """Offer a point; True when it entered the front (and perhaps removed others)."""
        losses = _losses(values, self.objectives)
        if _has_nan(losses):
            return False
        own = tuple(float(value) for value in values)
        if self._values.get(key, own) != own:
            raise ValueError(f"{key!r} is on the front already, with other values")
        new = _Member(losses[-1], losses, key)
        # What covers the new point sorts before it, what it covers sorts after it. With two
        # objectives, quality rises along the front: the nearest rival decides, and the covered
        # members are its neighbours.
        sorted_front = len(losses) <= 2
        spot = bisect.bisect_right(self._members, new[:2], key=lambda member: member[:2])
        rivals = self._members[max(0, spot - 1) if sorted_front else 0 : spot]
        if any(_covers(rival.losses, losses) for rival in rivals):
            return False
        drop = itertools.dropwhile if sorted_front else itertools.filterfalse
        dearer = list(drop(lambda member: _covers(losses, member.losses), self._members[spot:]))
        for gone in {member.key for member in self._members[spot:]} - {m.key for m in dearer}:
            del self._values[gone]
        self._members[spot:] = [new, *dearer]
        self._values[key] = own
        return True

    @property
    def keys(self) -> list[str]:
        """Keys of the front, by the last objective (the cost), ascending."""
        cheapest_first = [member.key for member in self._members]
        return cheapest_first[::-1] if self.objectives[-1].maximize else cheapest_first

    @property
    def items(self) -> list[tuple[str, Values]]:
        """(key, values) of the front, in the order of `keys`."""
        return [(key, self._values[key]) for key in self.keys]

    def hypervolume(self, reference: Sequence[float]) -> float:
        return hypervolume(self._values.values(), reference, self.objectives)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, key: object) -> bool:
        return key in self._values


class _Member(NamedTuple):
    cost: float  # loss of the last objective
    losses: Values
    key: str


# Below, points are losses: every coordinate is minimised.


def _losses(values: Sequence[float], objectives: Sequence[Objective]) -> Values:
    if len(objectives) == 0:
        raise ValueError("a front needs at least one objective")
    if len(values) != len(objectives):
        raise ValueError(
            f"expected {len(objectives)} values ({_names(objectives)}), "
            f"got {len(values)}: {tuple(values)}"
        )
    return tuple(o.sign * float(v) for o, v in zip(objectives, values, strict=True))


def _finite_losses(values: Sequence[float], objectives: Sequence[Objective], role: str) -> Values:
    try:
        losses = _losses(values, objectives)
    except ValueError as error:
        raise ValueError(f"{role}: {error}") from None
    if not all(map(math.isfinite, losses)):
        raise ValueError(f"{role}: values must be finite, got {tuple(values)}")
    return losses


def _losses_with_cost(
    points: Sequence[Sequence[float]], objectives: Sequence[Objective], cost_index: int
) -> dict[int, Values]:
    if not -len(objectives) <= cost_index < len(objectives):
        raise ValueError(f"cost_index {cost_index} is outside the {len(objectives)} objectives")
    if objectives[cost_index].maximize:
        raise ValueError(f"{objectives[cost_index].name!r} is maximised, so it is not a cost")
    losses = {i: _losses(point, objectives) for i, point in enumerate(points)}
    return {i: loss for i, loss in losses.items() if not _has_nan(loss)}


def _names(objectives: Sequence[Objective]) -> str:
    return ", ".join(objective.name for objective in objectives)


def _has_nan(losses: Values) -> bool:
    return any(map(math.isnan, losses))


def _covers(a: Values, b: Values) -> bool:
    """Whether `a` is at least as good as `b` in everything: it dominates `b` or equals it."""
    return all(map(operator.le, a, b))


def _strictly_better(a: Values, b: Values) -> bool:
    return all(map(operator.lt, a, b))


def _front(losses: Sequence[Values]) -> list[int]:
    """Indices of the front in lexicographic order of their losses.

    In that order no point is dominated by a later one, so one pass suffices; with two objectives
    the last member kept is the only one that needs a look.
    """
    order = sorted(
        (i for i, loss in enumerate(losses) if not _has_nan(loss)), key=lambda i: (losses[i], i)
    )
    front: list[int] = []
    for i in order:
        rivals = front[-1:] if len(losses[i]) <= 2 else front
        if not any(_covers(losses[j], losses[i]) for j in rivals):
            front.append(i)
    return front


def _volume(losses: Sequence[Values], limit: Values) -> float:
    inside = [loss for loss in losses if _strictly_better(loss, limit)]
    if not inside:
        return 0.0
    if len(limit) == 1:
        return limit[0] - min(inside)[0]
    if len(limit) == 2:
        ceiling, slabs = limit[1], []
        for x, y in (inside[i] for i in _front(inside)):
            slabs.append((limit[0] - x) * (ceiling - y))
            ceiling = y
        return math.fsum(slabs)
    if any(math.isinf(x) for loss in inside for x in loss):
        return math.inf

    import moocore
    import numpy as np

    return float(moocore.hypervolume(np.array(inside), ref=np.array(limit)))


def _contributions_2d(losses: Sequence[Values], limit: Values) -> list[float]:
    """Exclusive hypervolume of each point for two objectives: for a member of the front, the box
    between it and its two neighbours, minus the part that dominated points cover too."""
    front = _front(losses)
    xs = [losses[i][0] for i in front]
    corners = [
        (
            xs[rank + 1] if rank + 1 < len(front) else limit[0],
            losses[front[rank - 1]][1] if rank else limit[1],
        )
        for rank in range(len(front))
    ]
    understudies: list[list[Values]] = [[] for _ in front]
    members = set(front)
    for i, loss in enumerate(losses):
        if i not in members:
            understudies[bisect.bisect_right(xs, loss[0]) - 1].append(loss)
    exclusive = [0.0] * len(losses)
    for i, corner, others in zip(front, corners, understudies, strict=True):
        exclusive[i] = max(0.0, _volume([losses[i]], corner) - _volume(others, corner))
    return exclusive


def _leave_one_out(losses: Sequence[Values], limit: Values) -> list[float]:
    total = _volume(losses, limit)
    exclusive = [0.0] * len(losses)
    for i in _front(losses):
        rest = [loss for j, loss in enumerate(losses) if j != i]
        if losses[i] not in rest:
            exclusive[i] = max(0.0, total - _volume(rest, limit))
    return exclusive
