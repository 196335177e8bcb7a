"""Whether our number agrees with a printed one: differences in standard errors, and the order of
rows. Numbers in, words out; which trials are meant is decided in `paper`."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# A difference of at most so many standard errors is agreement.
ERRORS = 2.0
# How often two of our rows without a difference are told apart all the same.
CHANCE = 0.05


class Mark(StrEnum):
    """What is said of a row that is answered."""

    AGREES = "agrees"
    SAME_ORDER = "same order"
    DIFFERS = "differs"
    NOT_COMPARABLE = "not comparable"


class Order(StrEnum):
    """Whether our rows come in the order of the printed ones."""

    SAME = "same"
    OTHER = "other"


@dataclass(frozen=True)
class Printed:
    """A number as the paper prints it."""

    value: float
    spread: float | None = None
    runs: int = 1


@dataclass(frozen=True)
class Measured:
    """Our number: the mean over seeds, their standard deviation and how many there are."""

    value: float
    spread: float | None
    seeds: int


def measured(values: Sequence[float]) -> Measured:
    """Mean and sample standard deviation (n - 1) of the values over seeds; one has none."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Measured(statistics.fmean(values), spread, len(values))


def standard_error(ours: Measured, theirs: Printed) -> float | None:
    """The standard error of the difference,

        sqrt(s^2 / n + t^2 / m)

    with s, n our deviation and seeds and t, m those of the paper. A paper that prints no spread is
    taken to have ours; None where we have one seed."""
    if ours.spread is None:
        return None
    spread = ours.spread if theirs.spread is None else theirs.spread
    return math.hypot(ours.spread / math.sqrt(ours.seeds), spread / math.sqrt(theirs.runs))


def agrees(ours: Measured, theirs: Printed) -> bool | None:
    """Whether the difference is within two standard errors; None where that cannot be told."""
    error = standard_error(ours, theirs)
    if error is None:
        return None
    # Equal numbers agree, whatever the rounding of their difference.
    slack = 1e-12 * max(abs(ours.value), abs(theirs.value))
    return abs(ours.value - theirs.value) <= ERRORS * error + slack


def orders(pairs: Mapping[str, tuple[float, float]]) -> dict[str, Order | None]:
    """For each answered row, (printed, ours) by label, whether ours lies between the rows printed
    next below and next above it as the printed one does; None where no row is printed with another
    number."""
    return {label: _order(label, pairs) for label in pairs}


def _order(label: str, pairs: Mapping[str, tuple[float, float]]) -> Order | None:
    printed, ours = pairs[label]
    below = max((p for p, _ in pairs.values() if p < printed), default=None)
    above = min((p for p, _ in pairs.values() if p > printed), default=None)
    if below is None and above is None:
        return None
    # Rows printed with one number are all neighbours.
    under = [o for p, o in pairs.values() if p == below]
    over = [o for p, o in pairs.values() if p == above]
    same = all(o < ours for o in under) and all(o > ours for o in over)
    return Order.SAME if same else Order.OTHER


@dataclass(frozen=True)
class Turned:
    """Two rows that come the other way round than printed: ours of `higher` is above `lower`."""

    higher: str
    lower: str
    difference: float
    errors: float | None
    """the difference in standard errors; None where a row has one seed"""
    clear: bool
    """whether it is more than chance between seeds"""


@dataclass(frozen=True)
class Pairs:
    """The pairs of rows that are printed with different numbers."""

    count: int
    clear: int
    """how many come as printed by more than chance between seeds"""
    turned: list[Turned]
    """those that come the other way round, the clearest first"""


def paired(rows: Mapping[str, tuple[Printed, Measured]]) -> Pairs:
    """Every two rows, by label, and whether ours come as printed; equal means of ours are not
    turned round."""
    count, clear, found = 0, 0, []
    for (one, (p1, m1)), (two, (p2, m2)) in itertools.combinations(rows.items(), 2):
        if p1.value == p2.value:
            continue
        count += 1
        gap = m1.value - m2.value
        higher, lower = (one, two) if gap > 0 else (two, one)
        errors = _in_errors(abs(gap), m1, m2)
        beyond = errors is not None and errors > _beyond_chance(m1, m2)
        pair = Turned(higher, lower, abs(gap), errors, beyond)
        if gap * (p1.value - p2.value) < 0:
            found.append(pair)
        else:
            clear += beyond
    return Pairs(count, clear, sorted(found, key=lambda each: -(each.errors or 0.0)))


def _in_errors(gap: float, one: Measured, two: Measured) -> float | None:
    if one.spread is None or two.spread is None:
        return None
    error = math.hypot(one.spread / math.sqrt(one.seeds), two.spread / math.sqrt(two.seeds))
    return gap / error if error else math.inf if gap else 0.0


def _beyond_chance(one: Measured, two: Measured) -> float:
    """The number of standard errors that two rows without a difference exceed in one of 20 cases:
    Student's t with the degrees of freedom of Welch and Satterthwaite,

        (a + b)^2 / (a^2 / (n - 1) + b^2 / (m - 1)),    a = s^2 / n, b = t^2 / m

    which with 3 seeds each is 2.8 to 4.3."""
    from scipy.special import stdtrit

    parts = [(each.spread or 0.0) ** 2 / each.seeds for each in (one, two)]
    freedom = [each.seeds - 1 for each in (one, two)]
    below = sum(part**2 / free for part, free in zip(parts, freedom, strict=True))
    return float(stdtrit(sum(parts) ** 2 / below, 1 - CHANCE / 2)) if below else ERRORS


def mark(ours: Measured, theirs: Printed, order: Order | None, comparable: bool) -> Mark:
    """What is said of an answered row."""
    if not comparable:
        return Mark.NOT_COMPARABLE
    if agrees(ours, theirs):
        return Mark.AGREES
    return Mark.SAME_ORDER if order == Order.SAME else Mark.DIFFERS
