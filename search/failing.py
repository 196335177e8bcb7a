"""What the trials that failed have in common, in words: settings and levels of layers under which
training fails much more often than elsewhere. The sampler has a model of its own for that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.networks import Networks
from bitfront.search.ledger.states import TrialState
from bitfront.trainables.own_code import shown

# Reasons that say nothing about the point: the machine is to blame.
OF_MACHINES = ("lost worker", "hung")
# The trials that are looked at, the latest; conditions that are combined; thresholds of a number.
TRIALS, COMBINED, THRESHOLDS = 1000, 40, 24
# A pattern explains so many failures, and at least this share of the trials it holds for fails.
LEAST_FAILED, LEAST_SHARE = 3, 0.6
MOST_PATTERNS = 3


@dataclass(frozen=True)
class Pattern:
    """A condition under which trials fail."""

    text: str
    """for example `optimizer.lr above 0.03 with bnn++`"""
    failed: int
    ended: int
    """how many trials it holds for"""
    failed_elsewhere: int
    ended_elsewhere: int
    """of all other trials"""

    def __str__(self) -> str:
        rest = f"; elsewhere {self.failed_elsewhere} of {self.ended_elsewhere}"
        return f"{self.text}: {self.failed} of {self.ended} failed{rest}"


@dataclass(frozen=True)
class _Condition:
    text: str
    place: int
    """conditions of a plan, a method and a setting are put in this order"""
    subject: str
    holds: int
    """bit i: whether it holds for trial i"""


def patterns(entries: Iterable[Entry], networks: Networks) -> list[Pattern]:
    """The conditions that explain most failures, the most important first; none where failures are
    few, or are as frequent everywhere."""
    ended = [e for e in entries if _tells(e)][-TRIALS:]
    failed = sum(1 << i for i, e in enumerate(ended) if e.state == TrialState.FAILED)
    everything, found = (1 << len(ended)) - 1, list[Pattern]()
    if failed.bit_count() < LEAST_FAILED or failed == everything:
        return []
    known = _conditions(ended, networks)
    left = everything
    while len(found) < MOST_PATTERNS:
        best = _best(known, failed & left, left)
        if best is None:
            break
        text, holds = best
        inside, outside = holds & left, left & ~holds
        counts = [m.bit_count() for m in (inside & failed, inside, outside & failed, outside)]
        found.append(Pattern(text, *counts))
        left = outside
    return found


def _tells(entry: Entry) -> bool:
    """Whether a trial says something about its point: it ended, and not by the machine's fault."""
    if entry.state == TrialState.FAILED:
        return entry.failure not in OF_MACHINES
    return entry.state in (TrialState.COMPLETE, TrialState.STOPPED)


def _best(known: Sequence[_Condition], failed: int, trials: int) -> tuple[str, int] | None:
    """The condition, or the two together, that divide the trials best into those that fail and
    others: by the likelihood that is gained over one chance for all, less the logarithm of how many
    conditions were tried."""
    price = math.log(max(2, len(known)))
    base = _likelihood(failed, trials)

    def gain(holds: int) -> float:
        inside = holds & trials
        count = (inside & failed).bit_count()
        if count < LEAST_FAILED or count < LEAST_SHARE * inside.bit_count():
            return -math.inf
        apart = _likelihood(failed & inside, inside) + _likelihood(
            failed & ~inside, trials & ~inside
        )
        return apart - base

    found = [(gain(c.holds) - price, c.text, c.holds) for c in known]
    # Alone many are too weak that are strong together: the best by what they exclude.
    strong = sorted(known, key=lambda c: -_divides(c.holds, failed, trials))[:COMBINED]
    for one, other in combinations(sorted(strong, key=lambda c: c.place), 2):
        if one.subject != other.subject or one.place == other.place == 2:
            both = one.holds & other.holds
            if both not in (one.holds, other.holds):
                text = f"{other.text} with {one.text}"
                found.append((gain(both) - 2 * price, text, both))
    value, text, holds = max(found, default=(-1.0, "", 0), key=lambda f: f[0])
    return (text, holds) if value > 0 else None


def _divides(holds: int, failed: int, trials: int) -> float:
    inside, outside = holds & trials, trials & ~holds
    apart = _likelihood(failed & inside, inside) + _likelihood(failed & outside, outside)
    more = (inside & failed).bit_count() * trials.bit_count()
    return apart if more > failed.bit_count() * inside.bit_count() else -math.inf


def _likelihood(failed: int, trials: int) -> float:
    """The greatest log likelihood of so many failures with one chance for all trials."""
    total, count = trials.bit_count(), (failed & trials).bit_count()
    return sum(n * math.log(n / total) for n in (count, total - count) if n)


def _conditions(ended: Sequence[Entry], networks: Networks) -> list[_Condition]:
    """What may be said of some of the trials and not of the others."""
    said: dict[tuple[int, str, str], int] = {}

    def say(i: int, place: int, subject: str, text: str) -> None:
        said[place, subject, text] = said.get((place, subject, text), 0) | 1 << i

    numbers: dict[str, dict[int, float]] = {}
    for i, entry in enumerate(ended):
        spec = entry.spec
        say(i, 0, "method", shown(spec.method))
        layers = networks.of(spec.task)
        for k, letter in enumerate(spec.plan):
            name = layers[k].name if layers is not None and k < len(layers) else f"layer {k + 1}"
            say(i, 1, name, f"{name} at {letter}")
        for name, value in entry.drawn.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers.setdefault(name, {})[i] = value
            elif name != "method":
                say(i, 2, name, f"{shown(name)} {shown(str(value))}")
    for name, values in numbers.items():
        for i, text in _thresholds(values):
            say(i, 2, name, f"{shown(name)} {text}")
    everything = (1 << len(ended)) - 1
    return [
        _Condition(text, place, subject, holds)
        for (place, subject, text), holds in said.items()
        if holds != everything
    ]


def _thresholds(values: dict[int, float]) -> Iterable[tuple[int, str]]:
    """(trial, "above ..." or "below ...") for thresholds between neighbouring values."""
    ranked = sorted(set(values.values()))
    step = max(1, len(ranked) // THRESHOLDS)
    for below, above in list(pairwise(ranked))[::step]:
        text = _between(below, above)
        for i, value in values.items():
            yield i, f"above {text}" if value >= above else f"below {text}"


def _between(low: float, high: float) -> str:
    """The shortest number between two others."""
    middle: Any = math.sqrt(low * high) if low > 0 else (low + high) / 2
    for digits in range(1, 17):
        text = f"{middle:.{digits}g}"
        if low < float(text) < high or (float(text) == low and isinstance(low, int)):
            return f"{float(text):.{digits}g}"
    return f"{middle}"
