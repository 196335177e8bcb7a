"""Problems with a known front: the truth tables, and synthetic problems with more layers than can
be trained exhaustively. Each can be relabelled: F and B are exchanged in random layers, so that
plans of one letter, such as all F, are no special points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from bitfront.search.config.known import COSTS
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.space import build_space
from bitfront.search.front import Objective, hypervolume
from bitfront.search.ledger.entry import Entry
from bitfront.spaces.space import Space
from bitfront.trainables.task import TrialSpec
from testbed import truth

OBJECTIVES = [Objective("val_accuracy", True), Objective("flops", False)]
CHANCE = 0.1
EPOCHS = 9


@dataclass(frozen=True)
class KnownSpace(Space):
    """A space whose costs come from a problem instead of a network."""

    price: Callable[[str], dict[str, float]] = field(default=lambda plan: {})

    def costs(self, spec: TrialSpec) -> dict[str, float]:
        return self.price(spec.plan)

    def full_costs(self) -> list[dict[str, float]]:
        return [dict.fromkeys(COSTS, 1.0)]


@dataclass(frozen=True)
class Problem:
    """Accuracy and cost of every plan of `layers` letters F and B."""

    name: str
    layers: int
    config: SearchConfig
    accuracy: Callable[[np.ndarray], np.ndarray]
    """(plans as bits (n, layers), 1 where a layer is binary) -> expected accuracies"""
    cost: Callable[[np.ndarray], np.ndarray]
    """(plans as bits) -> shares of the full-precision flops"""
    observed: Callable[[np.ndarray, int], list[float]]
    """(plan, seed) -> accuracy after every epoch, as a search with this seed observes it"""
    flip: np.ndarray
    """1 where the letters of a layer are exchanged"""

    def bits(self, plan: str) -> np.ndarray:
        binary = np.array([letter == "B" for letter in plan])
        bits: np.ndarray = (binary ^ (self.flip == 1)).astype(np.float32)
        return bits

    def price(self, plan: str) -> dict[str, float]:
        share = float(self.cost(self.bits(plan)[None])[0])
        return dict.fromkeys(COSTS, share)

    def space(self) -> KnownSpace:
        base = build_space(self.config)
        parts = {part.name: getattr(base, part.name) for part in fields(base)}
        return KnownSpace(**parts, price=self.price)

    def answer(self, seed: int) -> Callable[[Entry], list[float]]:
        return lambda entry: self.observed(self.bits(entry.spec.plan), seed)

    def share(self, plans: list[str]) -> float:
        """The hypervolume of these plans, from their expected accuracies, as a share of the true
        one."""
        if not plans:
            return 0.0
        bits = np.stack([self.bits(plan) for plan in plans])
        return volume(self.accuracy(bits), self.cost(bits)) / self.true_volume

    def share_of(self, entries: Sequence[Entry], strict: bool = False) -> float:
        """The share of the hypervolume that these trials found. `strict`: from a reference point
        that leaves little to have for nothing, the accuracy of the worst plan at the cost of full
        precision, instead of chance at 1.1 times that cost."""
        plans = [entry.spec.plan for entry in entries]
        if not strict or not plans:
            return self.share(plans)
        bits = np.stack([self.bits(plan) for plan in plans])
        found = volume(self.accuracy(bits), self.cost(bits), self.worst, 1.0)
        return found / volume(*self.known, self.worst, 1.0)

    @property
    def worst(self) -> float:
        """The accuracy of the worst plan, of those that are known."""
        return float(self.known[0].min())

    @cached_property
    def true_volume(self) -> float:
        return volume(*self.known)

    @cached_property
    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Accuracies and costs of all plans, or of the good ones where they are too many."""
        if self.layers <= 20:
            number = np.arange(1 << self.layers)
            layer = np.arange(self.layers)
            pairs = []
            for some in np.array_split(number, max(1, len(number) >> 16)):
                bits = ((some[:, None] >> layer) & 1).astype(np.float32)
                pairs.append((self.accuracy(bits), self.cost(bits)))
        else:
            pairs = [best_known(self)]
        accuracy, cost = (np.concatenate(column) for column in zip(*pairs, strict=True))
        return accuracy, cost


def volume(
    accuracy: np.ndarray, cost: np.ndarray, worst: float = CHANCE, dearest: float = 1.1
) -> float:
    """The hypervolume of points, by default with the reference point of a search: the accuracy of
    chance and 1.1 times the flops in full precision."""
    order = np.lexsort((-accuracy, cost))
    rising = np.maximum.accumulate(accuracy[order])
    first = np.concatenate([[True], rising[1:] > rising[:-1]])
    kept = order[first]
    points = zip(accuracy[kept].tolist(), cost[kept].tolist(), strict=True)
    return hypervolume(list(points), [worst, dearest], OBJECTIVES)


def best_known(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(accuracies, costs) of good plans, for problems with too many plans to list: all plans that
    steepest ascents of accuracy - weight * cost visit, for many weights and random starts."""
    rng = np.random.default_rng(0)
    weight = np.repeat(np.concatenate([np.linspace(0, 1.5, 120), np.linspace(1.5, 6, 30)]), 12)
    shape = (len(weight), problem.layers)
    bits = (rng.random(shape) < rng.random((len(weight), 1))).astype(np.float32)
    value = problem.accuracy(bits) - weight * problem.cost(bits)
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    while True:
        best, where = value.copy(), np.full(len(weight), -1)
        for layer in range(problem.layers):
            other = bits.copy()
            other[:, layer] = 1 - other[:, layer]
            accuracy, cost = problem.accuracy(other), problem.cost(other)
            seen.append((accuracy, cost))
            better = accuracy - weight * cost > best
            best[better] = (accuracy - weight * cost)[better]
            where[better] = layer
        moving = where >= 0
        if not moving.any():
            break
        bits[moving, where[moving]] = 1 - bits[moving, where[moving]]
        value = best
    accuracy, cost = (np.concatenate(column) for column in zip(*seen, strict=True))
    return accuracy, cost


def _flips(layers: int, relabel: int | None) -> np.ndarray:
    if relabel is None:
        return np.zeros(layers, dtype=np.int64)
    return np.random.default_rng(relabel).integers(0, 2, layers)


@lru_cache(maxsize=32)
def table(name: str, relabel: int | None = None) -> Problem:
    """The problem of a truth table. A search observes the accuracy of one seed and is scored by the
    mean over all seeds."""
    known = truth.read(name)
    layers = len(known.plans[0])
    order = np.argsort([int(plan.replace("F", "0").replace("B", "1"), 2) for plan in known.plans])
    powers = 1 << np.arange(layers)[::-1]
    final, curves = known.final[order], known.accuracy[order]
    flops = known.costs["flops"][order] / known.costs["flops"].max()

    def index(bits: np.ndarray) -> np.ndarray:
        numbers: np.ndarray = (np.asarray(bits) @ powers).astype(np.int64)
        return numbers

    return Problem(
        name=name if relabel is None else f"{name}-relabelled",
        layers=layers,
        config=known.config,
        accuracy=lambda bits: final[index(bits)],
        cost=lambda bits: flops[index(bits)],
        observed=lambda bits, seed: curves[index(bits), seed % curves.shape[1]].tolist(),
        flip=_flips(layers, relabel),
    )


@lru_cache(maxsize=64)
def synthetic(layers: int, rough: bool, seed: int, relabel: bool = True) -> Problem:
    """A synthetic problem. Binary layers reduce the accuracy by one term per layer and terms of
    random pairs of layers; where `rough`, also of triples, and of three pairs with large losses.
    Costs are independent of these terms. The noise of an observation has a deviation of 0.003."""
    rng = np.random.default_rng([layers, rough, seed])
    part = rng.lognormal(0, 0.9, layers)
    part *= 0.45 / part.sum()
    saved = rng.lognormal(0, 0.7, layers)
    saved /= saved.sum()
    terms: list[tuple[np.ndarray, float]] = []
    for _ in range(2 * layers):
        terms.append((rng.choice(layers, 2, replace=False), 0.5 * part.mean() * rng.normal()))
    if rough:
        for _ in range(2 * layers):
            terms.append((rng.choice(layers, 3, replace=False), 0.8 * part.mean() * rng.normal()))
        for _ in range(3):
            terms.append((rng.choice(layers, 2, replace=False), rng.uniform(0.05, 0.15)))

    def accuracy(bits: np.ndarray) -> np.ndarray:
        total = 0.95 - bits @ part.astype(np.float32)
        for members, lost in terms:
            total = total - np.float32(lost) * bits[:, members].prod(1)
        return np.clip(total, CHANCE, 1.0).astype(np.float64)

    def cost(bits: np.ndarray) -> np.ndarray:
        return np.asarray(1 - 0.97 * (bits.astype(np.float64) @ saved))

    def observed(bits: np.ndarray, seed: int) -> list[float]:
        """The accuracies after every epoch: a saturating learning curve of random speed, with noise
        that makes its beginning slightly misleading."""
        noise = np.random.default_rng([seed, int.from_bytes(bits.tobytes(), "little") % 2**63])
        end = float(accuracy(bits[None])[0]) + 0.003 * noise.normal()
        slow = 2.0 + 0.3 * noise.normal()
        epochs = np.arange(1, EPOCHS + 1)
        early = (end - CHANCE) * (1 - np.exp(-epochs / slow)) / (1 - np.exp(-EPOCHS / slow))
        curve = CHANCE + early + 0.006 * noise.normal(size=EPOCHS) * (epochs < EPOCHS)
        return [float(accuracy) for accuracy in curve]

    config: dict[str, Any] = {
        "name": f"synthetic-{layers}",
        "task": {"dataset": "digits", "model": {"name": "mlp", "depth": layers + 1, "width": 2}},
        "space": {"method": "bnn", "plan": {"per": "layer", "levels": ["F", "B"]}},
    }
    config["task"]["epochs"] = EPOCHS
    return Problem(
        name=f"synthetic-{layers}-{'rough' if rough else 'smooth'}",
        layers=layers,
        config=SearchConfig.model_validate(config),
        accuracy=accuracy,
        cost=cost,
        observed=observed,
        flip=_flips(layers, seed if relabel else None),
    )
