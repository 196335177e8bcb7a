"""Arms of a comparison as points of accuracy and FLOPs, whatever kept file they come from."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bitfront.search.front import hypervolume_share
from bitfront.search.ledger.entry import Entry
from bitfront.search.results.results import Results, ideal_point
from studies.stock import Row


@dataclass(frozen=True)
class Point:
    """A network of an arm: the mean over its seeds."""

    accuracy: float
    flops: float
    flops_pct: float
    seeds: int
    label: str = ""


@dataclass(frozen=True)
class Arm:
    """What one way of finding networks gave, and what it trained."""

    name: str
    points: Sequence[Point]
    trials: int
    epochs: int
    seconds: float
    """of the processor, in training"""

    def within(self, most: float, least: float = 0) -> Point | None:
        """The most accurate point of such costs, in percent; of equal ones the cheapest."""
        fitting = [p for p in self.points if least <= p.flops_pct <= most]
        return max(fitting, key=lambda p: (p.accuracy, -p.flops), default=None)

    def share(self, like: Results) -> float:
        """The hypervolume of its points, measured as that of a search is."""
        values = [(p.accuracy, p.flops) for p in self.points]
        return hypervolume_share(
            values, like.reference, ideal_point(like.config), like.config.front_objectives
        )


def searched(name: str, results: Results) -> Arm:
    """A search; every point that finished, with its mean over seeds."""
    points = [_point(entry, entry.spec.method) for entry in results.points if entry.values]
    return _arm(name, points, results.entries)


def selected(several: Sequence[Results], name: str | None = None) -> Arm:
    """The plans of a selector, or of all, over searches with one seed each: points are means."""
    entries = [e for results in several for e in results.entries if e.values is not None]
    wanted = [e for e in entries if name in (None, selector_of(e))]
    found = [_mean(same) for same in together(wanted).values()]
    return _arm(name or "selectors", found, wanted)


def selector_of(entry: Entry) -> str:
    return str(entry.drawn["plan.selector"])


def together(entries: Iterable[Entry]) -> dict[tuple[str, float], list[Entry]]:
    """Trials by selector and budget: their seeds."""
    found: dict[tuple[str, float], list[Entry]] = defaultdict(list)
    for entry in entries:
        found[selector_of(entry), float(entry.drawn["plan.budget"])].append(entry)
    return found


def stock(rows: Sequence[Row]) -> Arm:
    """Trials of the stock combination."""
    points = [Point(r["val_accuracy"], r["flops"], r["flops_pct"], 1, r["method"]) for r in rows]
    epochs, seconds = (sum(r[key] for r in rows) for key in ("epochs", "cpu_seconds"))
    return Arm("stock", points, len(rows), epochs, seconds)


def _mean(entries: Sequence[Entry]) -> Point:
    """Seeds of one selector and budget; those of random are of different plans."""
    mean = {key: statistics.fmean(e.costs[key] for e in entries) for key in ("flops", "flops_pct")}
    accuracy = statistics.fmean(e.metrics["val_accuracy"] for e in entries)
    return Point(accuracy, mean["flops"], mean["flops_pct"], len(entries), selector_of(entries[0]))


def _point(entry: Entry, label: str) -> Point:
    costs = entry.costs
    accuracy = entry.metrics["val_accuracy"]
    return Point(accuracy, costs["flops"], costs["flops_pct"], entry.seeds, label)


def _arm(name: str, points: Sequence[Point], entries: Sequence[Entry]) -> Arm:
    ended = [e for e in entries if e.values is not None]
    epochs = sum(e.spec.task.epochs for e in ended)
    return Arm(name, points, len(ended), epochs, sum(e.cpu_seconds or 0 for e in ended))
