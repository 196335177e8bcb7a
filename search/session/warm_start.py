"""Warm start: the front of another search as the first points of this one, and all its trials for
the model of the sampler. Plans are carried over by the relative position of a layer,
hyperparameters by name; a value that does not fit the space is replaced by the middle of its
domain."""

from __future__ import annotations

from typing import Any

from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import Results
from bitfront.search.samplers.problem import Elsewhere
from bitfront.spaces.space import FreePlan, Space, middle, recorded
from bitfront.trainables.parameters import Domain
from bitfront.trainables.plan import BINARY_STEPS

TRIALS = 250


def carried_points(results: Results, space: Space) -> list[dict[str, Any]]:
    """The front of a search as points of this space, dearest first, without repetitions."""
    found: list[dict[str, Any]] = []
    for entry in reversed(results.front):
        point = carried(entry, space)
        if point not in found:
            found.append(point)
    return found


def carried_trials(results: Results, space: Space) -> list[Elsewhere]:
    """The finished trials of a search, at most TRIALS of them, the latest, as points of this
    space."""
    done = [entry for entry in results.entries if entry.state == TrialState.COMPLETE]
    return [
        {"point": carried(entry, space), "metrics": dict(entry.metrics)} for entry in done[-TRIALS:]
    ]


def carried(entry: Entry, space: Space) -> dict[str, Any]:
    """One trial of another search as a point of this space."""
    known = {**entry.drawn, "method": entry.spec.method}
    letters: list[str] = []

    def plain(name: str, domain: Domain) -> Any:
        value = known.get(name)
        if value is not None and domain.contains(value):
            return value
        if name == "method" and entry.spec.method == "fp":
            # Full precision is a plan of this space, whatever the method.
            return domain.values[0]  # type: ignore[union-attr]
        return middle(domain)

    def count(name: str, domain: Domain) -> Any:
        if _is_layer(name, space):
            letters.append(name)
            return space.plan.levels[0]  # type: ignore[union-attr]
        return plain(name, domain)

    space.walk(count)
    levels = space.plan.levels if isinstance(space.plan, FreePlan) else ()
    at = {name: i for i, name in enumerate(letters)}

    def draw(name: str, domain: Domain) -> Any:
        if not _is_layer(name, space):
            return plain(name, domain)
        place = (at[name] + 0.5) / len(letters)
        letter = entry.spec.plan[int(place * len(entry.spec.plan))]
        return nearest_level(letter, levels)

    return recorded(space, draw)


def nearest_level(letter: str, levels: tuple[str, ...]) -> str:
    """The level itself, or the one with the nearest number of binary steps; of two, the first."""
    return min(levels, key=lambda level: abs(BINARY_STEPS[level] - BINARY_STEPS[letter]))


def _is_layer(name: str, space: Space) -> bool:
    return isinstance(space.plan, FreePlan) and name.startswith("plan.")
