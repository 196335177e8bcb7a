"""A problem of three objectives: accuracy, flops and bytes of plans. Nothing was tuned on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache

import numpy as np

from bitfront.search.config.known import COSTS
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.space import build_space
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.spaces.space import Space
from bitfront.trainables.task import TrialSpec
from testbed.mixed import NOISE, Layers, config_of
from testbed.problems import CHANCE, EPOCHS

# Each cost is divided into so many steps where volumes are measured.
STEPS = 256


@dataclass(frozen=True)
class TwicePricedSpace(Space):
    """A space whose plans have flops and bytes that a problem says; all other costs are flops."""

    price: Callable[[TrialSpec], tuple[float, float]] = field(default=lambda spec: (1.0, 1.0))

    def costs(self, spec: TrialSpec) -> dict[str, float]:
        flops, size = self.price(spec)
        return dict.fromkeys(COSTS, flops) | {"bytes": size}

    def full_costs(self) -> list[dict[str, float]]:
        return [dict.fromkeys(COSTS, 1.0)]


def heights(accuracy: np.ndarray, costs: np.ndarray, top: float) -> np.ndarray:
    """(STEPS, STEPS): the best accuracy, at least that of chance, among points within every pair of
    costs up to `top`; costs are rounded up to steps."""
    found = np.full((STEPS, STEPS), CHANCE)
    place = np.ceil(costs / top * STEPS).astype(int) - 1
    inside = (place < STEPS).all(1)
    np.maximum.at(found, tuple(place[inside].clip(0).T), accuracy[inside])
    return np.maximum.accumulate(np.maximum.accumulate(found, 0), 1)


@dataclass(frozen=True)
class ThreeProblem:
    """Accuracy, flops and bytes of plans of layers that are F or B."""

    name: str
    layers: int
    config: SearchConfig
    known: Layers
    saved: np.ndarray
    """(layers, 2): flops and bytes that a binary layer saves, as shares of the whole"""

    def costs(self, codes: np.ndarray) -> np.ndarray:
        return np.asarray(1 - codes @ self.saved)

    def space(self) -> TwicePricedSpace:
        base = build_space(self.config)
        parts = {part.name: getattr(base, part.name) for part in fields(base)}

        def price(spec: TrialSpec) -> tuple[float, float]:
            flops, size = self.costs(self.known.codes(spec.plan))
            return float(flops), float(size)

        return TwicePricedSpace(**parts, price=price)

    def answer(self, seed: int) -> Callable[[Entry], list[float | str]]:
        """The accuracy after every epoch."""

        def observed(entry: Entry) -> list[float | str]:
            noise = np.random.default_rng([seed, int(entry.id, 16) % 2**63]).normal()
            end = float(self.known.accuracy(self.known.codes(entry.spec.plan)[None])[0])
            epochs = np.arange(1, EPOCHS + 1)
            rising = (1 - np.exp(-epochs / 2)) / (1 - np.exp(-EPOCHS / 2))
            curve = CHANCE + (end + NOISE * noise - CHANCE) * rising
            return [float(a) for a in curve]

        return observed

    def share_of(self, entries: Sequence[Entry], strict: bool = False) -> float:
        """The hypervolume of finished trials, from their expected accuracies, as a share of the
        true one; `strict` as in `testbed.problems`."""
        done = [e.spec.plan for e in entries if e.state == TrialState.COMPLETE]
        if not done:
            return 0.0
        codes = np.stack([self.known.codes(plan) for plan in done])
        accuracy, costs = self.known.accuracy(codes), self.costs(codes)
        top, least = (1.0, self.worst) if strict else (1.1, CHANCE)
        best = np.maximum(self.best[strict], least)
        found = np.maximum(heights(accuracy, costs, top), least)
        return float((found - least).sum() / (best - least).sum())

    @property
    def worst(self) -> float:
        """The accuracy of the worst plan, which has all layers binary."""
        return float(self.known.accuracy(np.ones((1, self.layers), int))[0])

    @cached_property
    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """The heights of the best known plans, up to 1.1 times the costs in full precision and up
        to these: of all plans that steepest ascents of accuracy less both costs, each at a weight
        of its own, visit."""
        rng = np.random.default_rng(0)
        weights = np.exp(rng.uniform(np.log(0.01), np.log(4), (1500, 2)))
        codes = (rng.random((1500, self.layers)) < rng.random((1500, 1))).astype(int)
        tops = 1.1, 1.0
        found = [np.full((STEPS, STEPS), CHANCE) for _ in tops]

        def value(plans: np.ndarray) -> np.ndarray:
            accuracy, costs = self.known.accuracy(plans), self.costs(plans)
            for known, top in zip(found, tops, strict=True):
                np.maximum(known, heights(accuracy, costs, top), out=known)
            return np.asarray(accuracy - (weights * costs).sum(1))

        now = value(codes)
        while True:
            best, flipped = now.copy(), np.full(len(codes), -1)
            for layer in range(self.layers):
                other = codes.copy()
                other[:, layer] = 1 - other[:, layer]
                gain = value(other)
                flipped[gain > best] = layer
                best = np.maximum(best, gain)
            moving = np.flatnonzero(flipped >= 0)
            if not len(moving):
                return found[0], found[1]
            codes[moving, flipped[moving]] = 1 - codes[moving, flipped[moving]]
            now = best


@lru_cache(maxsize=32)
def three(seed: int) -> ThreeProblem:
    """20 layers; flops and bytes of a layer have little to do with each other."""
    known = Layers.drawn(20, "FB", seed + 1000)
    saved = np.random.default_rng([6, seed]).lognormal(0, 0.8, (20, 2))
    saved *= 0.97 / saved.sum(0)
    config = config_of(20, {"method": "bnn", "plan": {"per": "layer", "levels": ["F", "B"]}})
    three_ = config.model_dump() | {
        "objectives": {"val_accuracy": "max", "flops": "min", "bytes": "min"}
    }
    return ThreeProblem("three", 20, SearchConfig.model_validate(three_), known, saved)
