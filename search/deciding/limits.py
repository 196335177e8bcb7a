"""Limits on what is measured: which trials keep them, and by how much the others miss them. Limits
on costs are checked before a trial (`config.bounds`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.bounds import Limit
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState

# How many of the trials that miss a limit are named.
NEAREST = 3


def missed(limits: Mapping[str, Limit], metrics: Mapping[str, float]) -> dict[str, float]:
    """By how much a trial with these metrics misses each limit it does not keep; infinitely where
    the metric was not measured."""
    found = {}
    for name, limit in limits.items():
        value = metrics.get(name, math.nan)
        amount = limit.violation(value) if math.isfinite(value) else math.inf
        if amount > 0:
            found[name] = amount
    return found


def keeping(config: SearchConfig, entries: Iterable[Entry]) -> list[Entry]:
    """The trials that keep all limits on what is measured."""
    limits = config.measured_limits
    return [e for e in entries if not limits or not missed(limits, e.metrics)]


def nearest_missing(config: SearchConfig, points: Iterable[Entry]) -> list[Entry]:
    """The complete points that miss a limit, the nearest first: by the greatest of its misses, each
    as a share of how far the points are apart in that metric."""
    limits = config.measured_limits
    done = [e for e in points if e.state == TrialState.COMPLETE]
    width = {}
    for name in limits:
        values = [e.metrics[name] for e in done if math.isfinite(e.metrics.get(name, math.nan))]
        width[name] = (max(values) - min(values) if values else 0.0) or 1.0
    far = {e.id: missed(limits, e.metrics) for e in done}

    def distance(entry: Entry) -> float:
        return max(amount / width[name] for name, amount in far[entry.id].items())

    return sorted((e for e in done if far[e.id]), key=lambda e: (distance(e), e.number))


def misses_in_words(config: SearchConfig, metrics: Mapping[str, float]) -> str:
    """`val_accuracy by 0.012`, for every limit that is missed; empty where all are kept."""
    told = []
    for name, amount in missed(config.measured_limits, metrics).items():
        by = f"by {amount:.3g}" if math.isfinite(amount) else "(not measured)"
        told.append(f"{name} {by}")
    return ", ".join(told)


def limits_in_words(config: SearchConfig, points: Sequence[Entry]) -> list[str]:
    """How many points keep the limits on what is measured, and which miss them by least; nothing
    where there are no such limits."""
    limits = config.measured_limits
    done = [e for e in points if e.state == TrialState.COMPLETE]
    if not limits or not done:
        return []
    asked = " and ".join(limit.describe(name) for name, limit in limits.items())
    near = nearest_missing(config, done)
    kept = len(done) - len(near)
    head = f"{kept} of {len(done)} points keep {asked}"
    if not kept:
        head = f"No point keeps {asked}, so the front is empty"
    if not near:
        return [f"{head}."]
    named = "; ".join(f"{e.id} misses {misses_in_words(config, e.metrics)}" for e in near[:NEAREST])
    return [f"{head}; the nearest others: {named}." if kept else f"{head}; the nearest: {named}."]


def limits_json(config: SearchConfig, points: Sequence[Entry]) -> dict[str, Any] | None:
    """The limits on what is measured as `bitfront status --json` prints them: how many points keep
    them, and which miss them, the nearest first; None where there are none."""
    limits = config.measured_limits
    if not limits:
        return None
    done = [e for e in points if e.state == TrialState.COMPLETE]
    near = nearest_missing(config, done)
    return {
        "metrics": {name: limit.model_dump() for name, limit in limits.items()},
        "kept": len(done) - len(near),
        "missed": [{"trial": e.id, "by": _finite(missed(limits, e.metrics))} for e in near],
    }


def _finite(amounts: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no infinity: None where a metric was not measured."""
    return {n: amount if math.isfinite(amount) else None for n, amount in amounts.items()}
