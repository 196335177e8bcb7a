"""Problems beyond plans of two levels: regions where training fails, three levels, settings beside
a plan, and spaces without one. Each has a known front, or the best that ascents with full knowledge
find. `failing`, `cliff`, `levels`, `mixed` and `pruning` were looked at while `free-cost` was made;
on `fragile` and `pruning-other` nothing was tuned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from bitfront.search.config.known import COSTS
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.space import build_space
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.spaces.space import Space
from bitfront.trainables.task import TrialSpec
from testbed.problems import CHANCE, EPOCHS, volume

NOISE = 0.003
# The epoch in which training fails.
FAILS_AT = 3
Points = tuple[np.ndarray, np.ndarray]
LR = {"float": [1e-4, 1.0], "log": True}
DECAY = {"float": [1e-6, 1e-2], "log": True}


@dataclass(frozen=True)
class PricedSpace(Space):
    """A space whose plans cost what a problem says."""

    price: Callable[[TrialSpec], float] = field(default=lambda spec: 1.0)

    def costs(self, spec: TrialSpec) -> dict[str, float]:
        return dict.fromkeys(COSTS, self.price(spec))

    def full_costs(self) -> list[dict[str, float]]:
        return [dict.fromkeys(COSTS, 1.0)]


@dataclass(frozen=True)
class MixedProblem:
    """Quality, cost and failures of every point."""

    name: str
    layers: int
    """0 where there is no plan"""
    config: SearchConfig
    quality: Callable[[TrialSpec], float]
    fails: Callable[[TrialSpec], str | None]
    """the reason why training fails at a point, or None"""
    best: Callable[[Space], Points]
    """accuracies and costs of the best points"""
    price: Callable[[TrialSpec], float] | None = None
    """None where the space itself knows the costs"""
    noise: float = NOISE
    """the deviation of what is observed"""

    def space(self) -> Space:
        base = build_space(self.config)
        if self.price is None:
            return base
        parts = {part.name: getattr(base, part.name) for part in fields(base)}
        return PricedSpace(**parts, price=self.price)

    def answer(self, seed: int) -> Callable[[Entry], list[float | str]]:
        """The accuracy after every epoch; where training fails the reason after the first ones."""

        def observed(entry: Entry) -> list[float | str]:
            reason = self.fails(entry.spec)
            noise = np.random.default_rng([seed, int(entry.id, 16) % 2**63])
            end = self.quality(entry.spec) + self.noise * noise.normal()
            epochs = np.arange(1, EPOCHS + 1)
            curve = CHANCE + (end - CHANCE) * (1 - np.exp(-epochs / 2)) / (1 - np.exp(-EPOCHS / 2))
            shown: list[float | str] = [float(a) for a in curve]
            return shown if reason is None else [*shown[: FAILS_AT - 1], reason]

        return observed

    def share_of(self, entries: Sequence[Entry], strict: bool = False) -> float:
        """The hypervolume of finished trials, from their expected accuracies, as a share of the
        true one; `strict` as in `testbed.problems`."""
        done = [e for e in entries if e.state == TrialState.COMPLETE]
        if not done:
            return 0.0
        quality = np.array([self.quality(e.spec) for e in done])
        cost = np.array([e.costs["flops"] for e in done]) / self.dearest
        if not strict:
            return volume(quality, cost) / self.true_volume
        accuracy, known = self.known
        worst = float(accuracy[accuracy > CHANCE].min())
        return volume(quality, cost, worst, 1.0) / volume(accuracy, known, worst, 1.0)

    @cached_property
    def dearest(self) -> float:
        return max(costs["flops"] for costs in self.space().full_costs())

    @cached_property
    def known(self) -> Points:
        return self.best(self.space())

    @cached_property
    def true_volume(self) -> float:
        return volume(*self.known)


def config_of(layers: int, space: dict[str, Any]) -> SearchConfig:
    task = {"dataset": "digits", "model": {"name": "mlp", "depth": layers + 1, "width": 2}}
    return SearchConfig.model_validate(
        {"name": f"mixed-{layers}", "task": {**task, "epochs": EPOCHS}, "space": space}
    )


def unit(value: float, low: float, high: float) -> float:
    """The place of a value in a logarithmic range, from 0 to 1."""
    return float(np.log(value / low) / np.log(high / low))


@dataclass(frozen=True)
class Layers:
    """What levels of layers lose and save: a term a layer and level, and terms of pairs."""

    letters: str
    lost: np.ndarray
    """(layers, levels)"""
    saved: np.ndarray
    """(layers, levels)"""
    pairs: list[tuple[int, int, float]]

    @staticmethod
    def drawn(layers: int, letters: str, seed: int) -> Layers:
        rng = np.random.default_rng([layers, len(letters), seed])
        part = rng.lognormal(0, 0.9, layers)
        part *= 0.45 / part.sum()
        price = rng.lognormal(0, 0.7, layers)
        price *= 0.97 / price.sum()
        between = rng.uniform(0.1, 0.6, layers)
        lost = np.stack([0 * part, between * part, part], axis=1)
        saved = np.stack([0 * price, price / 2, price], axis=1)
        columns = ["FWB".index(letter) for letter in letters]
        pairs = [
            (*rng.choice(layers, 2, replace=False), 0.5 * part.mean() * rng.normal())
            for _ in range(2 * layers)
        ]
        return Layers(letters, lost[:, columns], saved[:, columns], pairs)

    def codes(self, plan: str) -> np.ndarray:
        return np.array([self.letters.index(letter) for letter in plan])

    def accuracy(self, codes: np.ndarray) -> np.ndarray:
        """Of plans, (n, layers), by the place of each level among the letters."""
        layer = np.arange(len(self.lost))
        depth = codes / (len(self.letters) - 1)
        total = 0.95 - self.lost[layer, codes].sum(1)
        for i, j, lost in self.pairs:
            total = total - lost * depth[:, i] * depth[:, j]
        return np.asarray(np.clip(total, CHANCE, 1.0))

    def cost(self, codes: np.ndarray) -> np.ndarray:
        return np.asarray(1 - self.saved[np.arange(len(self.saved)), codes].sum(1))

    def best(self, fails: Callable[[np.ndarray], np.ndarray] | None = None) -> Points:
        """Accuracies and costs of all plans that steepest ascents of accuracy - weight * cost
        visit; those that fail have the accuracy of chance."""
        rng = np.random.default_rng(0)
        layers, levels = len(self.lost), len(self.letters)
        weight = np.repeat(np.concatenate([np.linspace(0, 1.5, 100), np.linspace(1.5, 6, 20)]), 8)
        codes = rng.integers(0, levels, (len(weight), layers))

        def valued(plans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            accuracy = self.accuracy(plans)
            if fails is not None:
                accuracy = np.where(fails(plans), CHANCE, accuracy)
            return accuracy, self.cost(plans)

        seen = [valued(codes)]
        value = seen[0][0] - weight * seen[0][1]
        while True:
            best, chosen = value.copy(), codes.copy()
            for layer in range(layers):
                for step in range(1, levels):
                    other = codes.copy()
                    other[:, layer] = (other[:, layer] + step) % levels
                    seen.append(valued(other))
                    gain = seen[-1][0] - weight * seen[-1][1]
                    better = gain > best
                    best[better], chosen[better] = gain[better], other[better]
            if (chosen == codes).all():
                accuracy, cost = (np.concatenate(c) for c in zip(*seen, strict=True))
                return accuracy, cost
            codes, value = chosen, best


def _nowhere(spec: TrialSpec) -> None:
    return None


@lru_cache(maxsize=32)
def failing(seed: int) -> MixedProblem:
    """20 layers, two of which must not be binary."""
    known = Layers.drawn(20, "FB", seed)
    two = np.random.default_rng([1, seed]).choice(20, 2, replace=False)

    def price(spec: TrialSpec) -> float:
        return float(known.cost(known.codes(spec.plan)[None])[0])

    return MixedProblem(
        "failing",
        20,
        config_of(20, {"method": "bnn", "plan": {"per": "layer", "levels": ["F", "B"]}}),
        lambda spec: float(known.accuracy(known.codes(spec.plan)[None])[0]),
        lambda spec: "nan" if any(spec.plan[i] == "B" for i in two) else None,
        lambda space: known.best(lambda codes: np.asarray(codes[:, two].any(1))),
        price,
    )


@lru_cache(maxsize=32)
def cliff(seed: int) -> MixedProblem:
    """12 layers, two methods and a learning rate that is best just below where training fails:
    one method fails earlier, and is the better one."""
    known = Layers.drawn(12, "FB", seed)
    best = np.random.default_rng([2, seed]).uniform(0.4, 0.7)

    def place(spec: TrialSpec) -> float:
        return unit(spec.task.optimizer.lr, 1e-4, 1.0)

    def quality(spec: TrialSpec) -> float:
        lost = 0.3 * (place(spec) - best) ** 2 + 0.01 * (spec.method == "bnn")
        return float(known.accuracy(known.codes(spec.plan)[None])[0]) - lost

    def fails(spec: TrialSpec) -> str | None:
        later = 0.25 if spec.method == "bnn" else 0.05
        return "nan" if place(spec) > best + later else None

    plan = {"per": "layer", "levels": ["F", "B"]}
    return MixedProblem(
        "cliff",
        12,
        config_of(12, {"method": ["bnn", "bnn++"], "plan": plan, "optimizer.lr": LR}),
        quality,
        fails,
        lambda space: known.best(),
        lambda spec: float(known.cost(known.codes(spec.plan)[None])[0]),
    )


@lru_cache(maxsize=32)
def fragile(seed: int) -> MixedProblem:
    """16 layers of which at most two of five may be binary, less where the learning rate is high;
    one trial in twelve is lost with its worker, wherever it is."""
    known = Layers.drawn(16, "FB", seed)
    five = np.random.default_rng([3, seed]).choice(16, 5, replace=False)

    def binary(spec: TrialSpec) -> int:
        return sum(spec.plan[i] == "B" for i in five)

    def quality(spec: TrialSpec) -> float:
        lr = unit(spec.task.optimizer.lr, 1e-4, 1.0)
        return float(known.accuracy(known.codes(spec.plan)[None])[0]) - 0.2 * (lr - 0.55) ** 2

    def fails(spec: TrialSpec) -> str | None:
        if binary(spec) + 2 * max(0.0, unit(spec.task.optimizer.lr, 1e-4, 1.0) - 0.6) * 5 > 2.5:
            return "oom"
        drawn = np.random.default_rng([seed, *spec.plan.encode()]).random()
        return "lost worker" if drawn < 1 / 12 else None

    plan = {"per": "layer", "levels": ["F", "B"]}
    return MixedProblem(
        "fragile",
        16,
        config_of(16, {"method": "bnn", "plan": plan, "optimizer.lr": LR}),
        quality,
        fails,
        lambda space: known.best(lambda codes: codes[:, five].sum(1) > 2),
        lambda spec: float(known.cost(known.codes(spec.plan)[None])[0]),
    )


@lru_cache(maxsize=32)
def levels(seed: int) -> MixedProblem:
    """16 layers of three levels; what one with binary weights alone loses lies in between."""
    known = Layers.drawn(16, "FWB", seed)
    return MixedProblem(
        "levels",
        16,
        config_of(16, {"method": "bnn", "plan": {"per": "layer", "levels": ["F", "W", "B"]}}),
        lambda spec: float(known.accuracy(known.codes(spec.plan)[None])[0]),
        _nowhere,
        lambda space: known.best(),
        lambda spec: float(known.cost(known.codes(spec.plan)[None])[0]),
    )


@lru_cache(maxsize=32)
def mixed(seed: int) -> MixedProblem:
    """20 layers and six settings; the best learning rate depends on how much is binary."""
    known = Layers.drawn(20, "FB", seed)
    rng = np.random.default_rng([4, seed])
    lr, decay, momentum = rng.uniform(0.35, 0.65, 3)
    batch, scale = rng.choice([32, 64, 128]), rng.choice(["none", "channel"])

    def quality(spec: TrialSpec) -> float:
        optimizer = spec.task.optimizer
        binary = spec.plan.count("B") / len(spec.plan)
        lost = 0.4 * (unit(optimizer.lr, 1e-4, 1.0) - lr - 0.2 * (binary - 0.5)) ** 2
        lost += 0.05 * (unit(optimizer.weight_decay, 1e-6, 1e-2) - decay) ** 2
        lost += 0.1 * (optimizer.momentum - momentum) ** 2
        lost += 0.01 * (spec.task.batch_size != batch)
        lost += 0.02 * (spec.params.get("scale") != scale)
        return float(known.accuracy(known.codes(spec.plan)[None])[0] - lost)

    space = {
        "method": "bnn",
        "plan": {"per": "layer", "levels": ["F", "B"]},
        "optimizer.lr": LR,
        "optimizer.weight_decay": DECAY,
        "optimizer.momentum": {"float": [0.0, 0.99]},
        "batch_size": [32, 64, 128],
        "bnn.scale": ["none", "channel"],
    }
    return MixedProblem(
        "mixed",
        20,
        config_of(20, space),
        quality,
        _nowhere,
        lambda space: known.best(),
        lambda spec: float(known.cost(known.codes(spec.plan)[None])[0]),
    )


def _pruning(name: str, model: dict[str, Any], bend: float, seed: int) -> MixedProblem:
    """No plan: the rate and the exponent of pruning, learning rate and weight decay. Costs are
    those of the network; accuracy saturates in the logarithm of the flops, and depends on how the
    weights that are kept are distributed."""
    config = SearchConfig.model_validate(
        {
            "name": name,
            "task": {"dataset": "digits", "model": model, "epochs": EPOCHS},
            "space": {
                "method": "edge-popup",
                "plan": "W",
                "edge-popup.rate": {"float": [0.5, 0.995]},
                "edge-popup.p": {"float": [0.0, 1.0]},
                "optimizer.lr": LR,
                "optimizer.weight_decay": DECAY,
            },
        }
    )
    rng = np.random.default_rng([5, seed])
    exponent, lr, decay = rng.uniform(0.2, 0.8), *rng.uniform(0.3, 0.7, 2)

    def at(kept: float, p: float) -> float:
        rising = 1 - np.exp(-((kept / 0.06) ** bend))
        return float(0.1 + 0.87 * rising * (1 - 0.5 * (p - exponent - 0.1 * np.log10(kept)) ** 2))

    def quality(spec: TrialSpec) -> float:
        kept, optimizer = 1 - float(spec.params["rate"]), spec.task.optimizer
        lost = 0.4 * (unit(optimizer.lr, 1e-4, 1.0) - lr) ** 2
        lost += 0.1 * (unit(optimizer.weight_decay, 1e-6, 1e-2) - decay) ** 2
        return float(max(CHANCE, at(kept, float(spec.params["p"])) - lost))

    def best(space: Space) -> Points:
        points, full = [], max(costs["flops"] for costs in space.full_costs())
        for kept in np.geomspace(0.005, 0.5, 50):
            for p in np.linspace(0, 1, 11):
                drawn = {"edge-popup.rate": 1 - float(kept), "edge-popup.p": float(p)}
                middle = {"optimizer.lr": 0.01, "optimizer.weight_decay": 1e-4}
                spec = space.walk(lambda key, domain, v=drawn | middle: v[key])  # type: ignore[misc]
                points.append((at(float(kept), float(p)), space.costs(spec)["flops"] / full))
        accuracy, cost = map(np.array, zip(*points, strict=True))
        return accuracy, cost

    return MixedProblem(name, 0, config, quality, _nowhere, best)


@lru_cache(maxsize=32)
def pruning(seed: int) -> MixedProblem:
    return _pruning("pruning", {"name": "mlp", "depth": 4, "width": 64}, 0.6, seed)


@lru_cache(maxsize=32)
def pruning_other(seed: int) -> MixedProblem:
    return _pruning("pruning-other", {"name": "mlp", "depth": 6, "width": 32}, 1.1, seed + 100)


MIXED: dict[str, Callable[[int], MixedProblem]] = {
    "failing": failing,
    "cliff": cliff,
    "levels": levels,
    "mixed": mixed,
    "pruning": pruning,
    "fragile": fragile,
    "pruning-other": pruning_other,
}
"""By name; a seed gives the instance."""
