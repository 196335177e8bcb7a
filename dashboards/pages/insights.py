"""What a front shows, in words: which layers are binary in its points and which settings they have,
each with the trials that say so and with its effect in a linear model of all finished trials."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from bitfront.dashboards.figures.trials.effects import Effect, effects_of
from bitfront.search.results.view import SearchView, TrialView
from bitfront.trainables.plan import BINARY_STEPS

# Fewer points of a front, or on one side of a cost, are no rule.
LEAST_POINTS, LEAST_SIDE = 4, 2
MOST_RULES = 8
# A setting with more numbers than these is continuous.
MOST_VALUES = 8


class Side(NamedTuple):
    """Neighbours on the front that agree, the cheapest first."""

    state: str
    trials: Sequence[TrialView]


@dataclass(frozen=True)
class Rule:
    """A sentence that all points of the front keep."""

    text: str
    trials: Sequence[str]
    """the trials of the front that support it"""
    effect: str = ""
    """what the model says of it; empty where it says nothing"""
    weight: float = 0.0

    @property
    def sentence(self) -> str:
        """The rule, what it does and who says so."""
        left = len(self.trials) - 8
        shown = ", ".join(self.trials[:8]) + (f" and {left} more" if left > 0 else "")
        effect = f" {self.effect}" if self.effect else ""
        return f"{self.text}.{effect} Trials: {shown}."


def rules(view: SearchView) -> list[Rule]:
    """What the front shows, those with the greatest effect first; nothing where it has too few
    points."""
    front = [view.by_id[key] for key in view.front if key in view.by_id]
    front = sorted(front, key=lambda t: t.values.get(view.cost.name, 0.0))
    if len(front) < LEAST_POINTS:
        return []
    effects = effects_of(view)
    found = [*_of_layers(view, front, effects), *_of_settings(view, front, effects)]
    return sorted(found, key=lambda rule: -rule.weight)[:MOST_RULES]


def _of_layers(
    view: SearchView, front: Sequence[TrialView], effects: Mapping[str, Effect]
) -> list[Rule]:
    """A rule for the layers of a stage that behave alike, or for the layers one by one."""
    stages: dict[str, list[str]] = defaultdict(list)
    states: dict[str, list[tuple[TrialView, str]]] = defaultdict(list)
    for trial in front:
        for layer, letter in zip(view.layers_of(trial), trial.plan, strict=True):
            if layer.name not in states:
                stages[layer.stage].append(layer.name)
            binary = BINARY_STEPS.get(letter, 1.0) >= 1
            states[layer.name].append((trial, "binary" if binary else "in full precision"))
    found = []
    for stage, names in stages.items():
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in names:
            alike[tuple(f"{trial.id} {state}" for trial, state in states[name])].append(name)
        for members in alike.values():
            who = _who(stage, members, len(members) == len(names))
            known = [effects[f"layer {name}"] for name in members if f"layer {name}" in effects]
            total = Effect(sum(e.change for e in known), math.sqrt(sum(e.error**2 for e in known)))
            what = "Binary instead of full precision there"
            found += _rule(view, who, states[members[0]], what, total if known else None)
    return found


def _who(stage: str, names: Sequence[str], whole: bool) -> str:
    """The layers of a rule as its subject."""
    if stage and whole and len(names) > 1:
        return f"All {len(names)} layers of {stage} are"
    if len(names) == 1:
        return f"{names[0]} is"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more + " are"


def _of_settings(
    view: SearchView, front: Sequence[TrialView], effects: Mapping[str, Effect]
) -> list[Rule]:
    """A rule for every setting with few values, and for the method."""
    found = []
    binary = [t for t in front if any(BINARY_STEPS.get(c, 1.0) >= 1 for c in t.plan)]
    of_all = {t.method for t in view.trials if any(BINARY_STEPS.get(c, 1.0) >= 1 for c in t.plan)}
    if len(of_all) > 1:
        states = [(trial, trial.method) for trial in binary]
        best = max(of_all, key=lambda m: sum(state == m for _, state in states))
        effect = effects.get(f"method {best}")
        what = f"{best} instead of the other methods"
        found += _rule(view, "The method of points with a binary layer is", states, what, effect)
    for name in sorted({name for trial in front for name in trial.settings}):
        values = {t.settings[name] for t in view.trials if name in t.settings}
        states = [(t, t.settings[name]) for t in front if name in t.settings]
        if 1 < len(values) <= MOST_VALUES:
            what = f"Twice the {name}"
            found += _rule(view, f"{name} is", states, what, effects.get(f"log2 {name}"))
    return found


def _rule(
    view: SearchView,
    who: str,
    states: Sequence[tuple[TrialView, str]],
    what: str,
    effect: Effect | None,
) -> list[Rule]:
    """The rule that these states along the front keep, as a list of one; [] where they keep none:
    it is the same for all, or one up to a cost and another one above it."""
    sides = _sides(states)
    if len(states) < LEAST_POINTS or len(sides) > 2:
        return []
    trials = [trial.id for trial, _ in states]
    if len(sides) == 1:
        text = f"{who} {sides[0].state} in {len(trials)} of {len(trials)} points"
    elif min(len(side.trials) for side in sides) >= LEAST_SIDE:
        below, above = sides
        limit = view.cost.text(above.trials[0].values.get(view.cost.name))
        unit = " %" if view.cost.name.endswith("_pct") else f" {view.cost.short}"
        text = (
            f"{who} {above.state} from {limit}{unit} on ({len(above.trials)} points), and "
            f"{below.state} below ({len(below.trials)})"
        )
    else:
        return []
    size = 0.0 if effect is None else abs(effect.change)
    return [Rule(text, trials, "" if effect is None else _in_words(view, what, effect), size)]


def _sides(states: Sequence[tuple[TrialView, str]]) -> list[Side]:
    """Runs of the same state along the front."""
    starts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(states)) if a[1] != b[1])]
    ends = [*starts[1:], len(states)]
    return [
        Side(states[a][1], [trial for trial, _ in states[a:b]])
        for a, b in zip(starts, ends, strict=True)
        if a < b
    ]


def _in_words(view: SearchView, what: str, effect: Effect) -> str:
    """An effect as a sentence."""
    scale, unit = (100, " points") if view.quality.percent else (1, "")
    size, error = scale * abs(effect.change), scale * effect.error
    if abs(effect.change) < 2 * effect.error:
        return (
            f"{what} makes no clear difference ({scale * effect.change:+.2g} ± {error:.2g}{unit})."
        )
    verb = "adds" if effect.change > 0 else "takes"
    return (
        f"{what} {verb} {size:.2g} ± {error:.2g}{unit} of {view.quality.short}, "
        "other things being equal."
    )
