"""What a front is worth beside full precision: the network without a binary layer that was trained
in the same search, and what the front keeps of it at which share of its cost."""

from __future__ import annotations

from collections.abc import Sequence

from bitfront.search.results.points import FrontPoint
from bitfront.trainables.plan import BINARY_STEPS

NAME = "full precision"
# A point keeps the quality of the baseline where it loses at most this much: a percentage point of
# a share such as accuracy, of any other quality a hundredth of the baseline's.
KEPT = 0.01


def baseline_of(points: Sequence[FrontPoint], maximize: bool) -> FrontPoint | None:
    """The best network in full precision among these points, the cheapest of equals; None where
    none was trained, or nothing else was."""
    full = [point for point in points if _is_full(point)]
    if not full or len(full) == len(points):
        return None
    return max(full, key=lambda p: (_good(p, maximize), -p.cost, p.trial))


def kept_by(
    points: Sequence[FrontPoint], baseline: FrontPoint, maximize: bool, share: bool
) -> FrontPoint | None:
    """The cheapest point of the front with a binary layer that keeps the quality of the baseline;
    where none does, the best one that is cheaper; None where none is."""
    cheaper = [p for p in points if p.on_front and p.cost < baseline.cost and not _is_full(p)]
    room = KEPT if share else KEPT * abs(baseline.accuracy)
    least = _good(baseline, maximize) - room - 1e-12
    keeping = [p for p in cheaper if _good(p, maximize) >= least]
    if keeping:
        return min(keeping, key=lambda p: (p.cost, p.trial))
    return max(cheaper, key=lambda p: (_good(p, maximize), -p.cost), default=None)


def claim(baseline: FrontPoint, kept: FrontPoint | None, share: bool, cost: str) -> str:
    """Both in a line, such as "full precision 98.6 %; 98.3 % at 7 % of its FLOPs"."""
    text = f"{NAME} {_quality(baseline, share)}"
    if kept is None or baseline.cost <= 0:
        return text
    of = 100 * kept.cost / baseline.cost
    rounded = f"{of:.0f}" if of >= 10 else f"{of:.2g}"
    return f"{text}; {_quality(kept, share)} at {rounded} % of its {cost}"


def _is_full(point: FrontPoint) -> bool:
    return not any(BINARY_STEPS.get(level, 1.0) for level in point.plan)


def _good(point: FrontPoint, maximize: bool) -> float:
    return point.accuracy if maximize else -point.accuracy


def _quality(point: FrontPoint, share: bool) -> str:
    return f"{100 * point.accuracy:.1f} %" if share else f"{point.accuracy:.4g}"
