"""Problems made of real trainings in spaces too large to train every point: a few hundred points,
half of them random, half changes of the best so far, are trained (`build.py`); perceptrons fitted
to them answer for all others. No model of a sampler is in it, so that none is at home here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from bitfront.search.config.load import load
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.space import build_space
from bitfront.search.samplers.surrogate.atlas import place_of
from bitfront.spaces.space import FreePlan, Space
from bitfront.trainables.own_code.places import look_in
from bitfront.trainables.parameters import Choice, Domain
from bitfront.trainables.task import TrialSpec
from testbed import truth
from testbed.mixed import MixedProblem, Points
from testbed.problems import CHANCE

FOLDER = Path(__file__).parent
# Hidden units of the two layers of each perceptron, and how many perceptrons are averaged.
HIDDEN, COUNT = 48, 6
# Random points from which the best known ones are looked for, and rounds of changing one thing.
TRIED, ROUNDS = 4000, 40

Point = dict[str, Any]


def names() -> list[str]:
    """Those that have been trained."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def search(name: str) -> tuple[SearchConfig, Space]:
    """The search whose points are trained."""
    look_in(truth.FOLDER)
    return load(FOLDER / f"{name}.yaml")


@dataclass(frozen=True)
class Inputs:
    """Points as numbers from -1 to 1: -1 for F and 1 for B a layer, places of settings."""

    space: Space

    @cached_property
    def domains(self) -> dict[str, Domain]:
        """The parameters that every trial has, the layers of the plan among them."""
        found: dict[str, Domain] = {}

        def draw(name: str, domain: Domain) -> Any:
            found[name] = domain
            return only(domain)

        self.space.walk(draw)
        return {name: domain for name, domain in found.items() if domain.size > 1}

    def of(self, points: Iterable[Mapping[str, Any]]) -> np.ndarray:
        """(points, parameters)."""
        domains = self.domains.items()
        rows = [[2 * place(d, point[name]) - 1 for name, d in domains] for point in points]
        return np.array(rows)

    def at(self, row: np.ndarray) -> Point:
        """The point at these numbers."""
        found: Point = {}
        for at, (name, domain) in zip((row + 1) / 2, self.domains.items(), strict=True):
            if isinstance(domain, Choice):
                found[name] = domain.values[round(float(at) * (len(domain.values) - 1))]
            elif domain.log:
                found[name] = float(domain.low * (domain.high / domain.low) ** at)
            else:
                found[name] = float(domain.low + at * (domain.high - domain.low))
        return found

    def drawn(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Random points; the share of binary layers is drawn first."""
        width = len(self.domains)
        if not isinstance(self.space.plan, FreePlan):
            return rng.uniform(-1, 1, (count, width))
        return np.where(rng.random((count, width)) < rng.random((count, 1)), 1.0, -1.0)

    def changed(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Each with one to three parameters changed."""
        rows = rows.copy()
        for row in rows:
            for column in rng.choice(rows.shape[1], rng.integers(1, 4), replace=False):
                if isinstance(self.space.plan, FreePlan):
                    row[column] *= -1
                else:
                    row[column] = np.clip(row[column] + 0.4 * rng.normal(), -1, 1)
        return rows


def answer(weights: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """The mean of the perceptrons, on the scale of accuracies."""
    found = []
    for k in range(len(weights["w0"])):
        x = np.tanh(rows @ weights["w0"][k] + weights["b0"][k])
        x = np.tanh(x @ weights["w1"][k] + weights["b1"][k])
        found.append((x @ weights["w2"][k])[:, 0] + weights["b2"][k, 0])
    shift, scale = weights["scale"]
    return np.asarray(np.clip(shift + scale * np.mean(found, axis=0), CHANCE, 1.0))


@lru_cache(maxsize=8)
def _read(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any], SearchConfig]:
    look_in(truth.FOLDER)
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as stored:
        header = json.loads(str(stored["header"]))
        weights = {key: stored[key].astype(np.float64) for key in stored if key != "header"}
    return weights, header, SearchConfig.model_validate(header["config"])


def facts(name: str) -> dict[str, Any]:
    """How many points were trained, and how well the perceptrons predict those they did not see."""
    return dict(_read(name)[1])


@lru_cache(maxsize=8)
def dense(name: str) -> MixedProblem:
    """The problem; seeds differ in the noise of what is observed only."""
    weights, header, config = _read(name)
    inputs = Inputs(build_space(config))
    plan = isinstance(inputs.space.plan, FreePlan)
    known: dict[str, float] = {}

    def quality(spec: TrialSpec) -> float:
        key = spec.model_dump_json()
        if key not in known:
            known[key] = float(answer(weights, inputs.of([_point_of(spec, inputs)]))[0])
        return known[key]

    return MixedProblem(
        f"dense-{name}",
        len(inputs.domains) if plan else 0,
        config,
        quality,
        lambda spec: None,
        lambda space: best(inputs, weights),
        noise=float(header["noise"]),
    )


def _point_of(spec: TrialSpec, inputs: Inputs) -> Point:
    """The parameters of a trial."""
    if isinstance(inputs.space.plan, FreePlan):
        return dict(zip(inputs.domains, spec.plan, strict=True))
    found: Point = {}
    for name in inputs.domains:
        first, rest = name.split(".", 1)
        own = first == spec.method
        found[name] = spec.params[rest] if own else getattr(spec.task.optimizer, rest)
    return found


def best(inputs: Inputs, weights: Mapping[str, np.ndarray]) -> Points:
    """Accuracies and costs of the best points that are found by changing random ones, with full
    knowledge: each for another worth of the cost."""
    rng = np.random.default_rng(0)
    rows = inputs.drawn(rng, TRIED)
    worth = np.exp(rng.uniform(np.log(1e-3), np.log(5.0), TRIED))
    price = prices(inputs)
    accuracy, cost = answer(weights, rows), price(rows)
    seen = [(accuracy, cost)]
    for _ in range(ROUNDS * max(1, rows.shape[1] // 4)):
        other = inputs.changed(rows, rng)
        seen.append((answer(weights, other), price(other)))
        better = seen[-1][0] - worth * seen[-1][1] > accuracy - worth * cost
        rows[better] = other[better]
        accuracy = np.where(better, seen[-1][0], accuracy)
        cost = np.where(better, seen[-1][1], cost)
    return np.concatenate([a for a, _ in seen]), np.concatenate([c for _, c in seen])


def prices(inputs: Inputs) -> Callable[[np.ndarray], np.ndarray]:
    """(rows) -> their flops as a share of the dearest: a sum over layers, or interpolated along
    the settings that decide it."""
    space = inputs.space
    dearest = max(costs["flops"] for costs in space.full_costs())

    def cost(row: np.ndarray) -> float:
        point = inputs.at(row)
        drawn = space.walk(lambda name, domain: point.get(name, only(domain)))
        return space.costs(drawn)["flops"] / dearest

    width = len(inputs.domains)
    if isinstance(space.plan, FreePlan):
        base = -np.ones(width)
        first = cost(base)
        single = 2 * np.eye(width) - 1
        saved = np.array([cost(row) - first for row in single])
        return lambda rows: first + (rows > 0) @ saved
    rate = list(inputs.domains).index("edge-popup.rate")
    exponent = list(inputs.domains).index("edge-popup.p")
    grid = np.linspace(-1, 1, 41)

    def placed(r: float, p: float) -> float:
        row = np.zeros(width)
        row[rate], row[exponent] = r, p
        return cost(row)

    known = np.array([[placed(r, p) for p in grid[::4]] for r in grid])

    between = RegularGridInterpolator((grid, grid[::4]), known)
    return lambda rows: between(rows[:, [rate, exponent]])


def place(domain: Domain, value: Any) -> float:
    """From 0 to 1: of a level the place among the levels, of a number that in its range."""
    if isinstance(domain, Choice):
        return domain.values.index(value) / max(1, len(domain.values) - 1)
    return place_of(domain, value)


def only(domain: Domain) -> Any:
    """The one value of a parameter that does not vary, or the first."""
    return domain.values[0] if isinstance(domain, Choice) else domain.low
