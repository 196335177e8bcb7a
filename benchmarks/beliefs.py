"""What it is worth to tell a search what is believed, right or wrong: a prior on every setting, the
trials of another search, or the order of layers of a selector.

    python -m benchmarks.beliefs                # continues where the CSV ends
    python -m benchmarks.beliefs --of transfer  # and then --of advice
    python -m benchmarks.beliefs --of model     # the error of the model alone: seconds
    python -m benchmarks.beliefs --table        # the medians of what it has

A right prior is the best value of a setting on a grid, in the middle of all others; a wrong one is
the worst value there. The other search had 60 trials of its own task, from which this one begins
with its front, or knows all its trials as well. Tasks are `related` where each layer loses about as
much there (within a factor of e^0.3, log-normal), learns 10 points worse and at twice the rate, and
`unrelated` where layers lose what others lose here. Searches are simulated as in
`benchmarks.search`."""

from __future__ import annotations

import argparse
import csv
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import OURS, run, shares
from benchmarks.table import Row, append_csv, csv_path, format_table, write_csv
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import Results
from bitfront.search.samplers.problem import Elsewhere, Problem
from bitfront.search.samplers.surrogate.ask import FreeCostSampler
from bitfront.search.samplers.surrogate.model import QualityModel
from bitfront.search.session.simulation import Replayed
from bitfront.search.session.warm_start import carried_points, carried_trials
from bitfront.spaces.space import Advice, Selecting, Space, middle, random_value
from bitfront.trainables.cost import CostTable
from bitfront.trainables.parameters import Choice, Domain
from bitfront.trainables.task import TrialSpec
from testbed.mixed import LR, MIXED, NOISE, Layers, MixedProblem, config_of, unit

MARKS = (10, 25, 50)
WORKERS = 4
PRIORS = ("cliff", "mixed", "pruning", "pruning-other")
GRID = 17
# Trials of another search.
ELSEWHERE = 60
# What a model is told, by name: another task; advice that is right or not. And of how many trials.
OTHERS = {"a related task": "related", "an unrelated task": "unrelated"}
ADVICE = {"right advice": True, "wrong advice": False}
FEW = (4, 8, 16, 40)


def with_priors(problem: MixedProblem, right: bool, confidence: str) -> MixedProblem:
    """The problem with the best or the worst value of every setting as its prior."""
    space = dict(problem.config.space)
    known = problem.space()
    for name, domain in {**known.overrides, "method": known.method}.items():
        space[name] = _believed(problem, name, domain, right, confidence)
    for method, params in known.method_params.items():
        for name, domain in params.items():
            key = f"{method}.{name}"
            space[key] = _believed(problem, key, domain, right, confidence)
    return replace(problem, config=problem.config.model_copy(update={"space": space}))


def _believed(
    problem: MixedProblem, name: str, domain: Domain, right: bool, confidence: str
) -> Any:
    """The domain as a YAML has it, with a prior."""
    quality = {value: _quality(problem, name, value) for value in _grid(domain)}
    value = (max if right else min)(quality, key=lambda v: quality[v])
    told = {"prior": value, "confidence": confidence}
    if isinstance(domain, Choice):
        return {"choice": list(domain.values), **told}
    return {"float": [domain.low, domain.high], "log": domain.log, **told}


def _grid(domain: Domain) -> list[Any]:
    if isinstance(domain, Choice):
        return list(domain.values)
    low, high = domain.low, domain.high
    steps = [i / (GRID - 1) for i in range(GRID)]
    inner = [low * (high / low) ** s if domain.log else low + s * (high - low) for s in steps[1:-1]]
    return [low, *inner, high]


def _quality(problem: MixedProblem, name: str, value: Any) -> float:
    """The accuracy with one setting at this value, less one where training fails; the plan has
    every second layer binary."""
    layers: list[str] = []

    def draw(key: str, domain: Domain) -> Any:
        if key.startswith("plan."):
            layers.append(key)
            assert isinstance(domain, Choice)
            return domain.values[0] if len(layers) % 2 else domain.values[-1]
        return value if key == name else middle(domain)

    spec = problem.space().walk(draw)
    return problem.quality(spec) - (problem.fails(spec) is not None)


def variants(name: str) -> dict[str, Callable[[MixedProblem], MixedProblem]]:
    """What a search is told, by name."""
    found: dict[str, Callable[[MixedProblem], MixedProblem]] = {"nothing": lambda p: p}
    for right in (True, False):
        for confidence in ("medium", "high"):
            told = f"{'right' if right else 'wrong'} prior, {confidence}"
            found[told] = lambda p, r=right, c=confidence: with_priors(p, r, c)  # type: ignore[misc]
    return found


def task(layers: int, seed: int, other: str = "") -> MixedProblem:
    """A task of its own or, by name, the `other` one that a search is begun from."""
    known = Layers.drawn(layers, "FB", seed)
    rate, worse, rng = 0.5, 0.0, np.random.default_rng([6, seed])
    if other == "related":
        lost = known.lost * rng.lognormal(0, 0.3, (layers, 1))
        known, rate, worse = replace(known, lost=lost), 0.58, 0.1
    if other == "unrelated":
        drawn = Layers.drawn(layers, "FB", seed + 1000)
        known, rate, worse = replace(known, lost=drawn.lost, pairs=drawn.pairs), 0.3, 0.1

    def quality(spec: TrialSpec) -> float:
        apart = unit(spec.task.optimizer.lr, 1e-4, 1.0) - rate
        return float(known.accuracy(known.codes(spec.plan)[None])[0]) - worse - 0.4 * apart**2

    plan = {"per": "layer", "levels": ["F", "B"]}
    space = {"method": "bnn", "plan": plan, "optimizer.lr": LR}
    return MixedProblem(
        f"task-{layers}",
        layers,
        config_of(layers, space),
        quality,
        lambda spec: None,
        lambda space: known.best(),
        lambda spec: float(known.cost(known.codes(spec.plan)[None])[0]),
    )


def begun(layers: int, seed: int, other: str, model: bool) -> dict[str, Any]:
    """What a search begins with that was told of another one: the points of its front, and its
    trials."""
    there, here = task(layers, seed, other), task(layers, seed).space()
    ended = run(there, OURS, ELSEWHERE, WORKERS, seed).ended
    results = Results.from_entries(SearchFolder(Path("other")), there.config, ended, [0.1, 1.1])
    found: dict[str, Any] = {"first": carried_points(results, here)}
    return found | ({"elsewhere": carried_trials(results, here)} if model else {})


def advised(layers: int, seed: int, right: bool) -> dict[str, Any]:
    """The order of layers by the damage for what is saved, with errors of a factor of e^0.5, or of
    the layers in the opposite order."""
    known, rng = Layers.drawn(layers, "FB", seed), np.random.default_rng([7, seed])
    damage = np.log(known.lost[:, -1] / known.saved[:, -1]) + 0.5 * rng.normal(size=layers)
    order = np.argsort(damage if right else -damage).tolist()
    return {"advice": KnownAdvice(Selecting(()), known=order)}


@dataclass(frozen=True)
class KnownAdvice(Advice):
    """Advice without a selector."""

    known: Sequence[int] = ()

    def orders(self, table: CostTable, seed: int) -> list[Sequence[int]]:
        return [self.known]


@dataclass(frozen=True)
class Advised(MixedProblem):
    """A problem whose space has advice."""

    advice: Advice | None = None

    def space(self) -> Space:
        return replace(super().space(), advice=self.advice)


def advice(path: Any, seeds: int) -> None:
    done = {(r["problem"], r["told"], int(r["seed"])) for r in read(path)}
    for seed in range(seeds):
        for layers in (16, 24):
            for told, right in ADVICE.items():
                if (f"task-{layers}", told, seed) not in done:
                    known = task(layers, seed)
                    parts = {f.name: getattr(known, f.name) for f in fields(known)}
                    problem = Advised(**parts, **advised(layers, seed, right))
                    _keep(path, problem, told, seed, run(problem, OURS, max(MARKS), WORKERS, seed))


def transfers(path: Any, seeds: int) -> None:
    done = {(r["problem"], r["told"], int(r["seed"])) for r in read(path)}
    for seed in range(seeds):
        for layers in (16, 24):
            for other in ("", "related", "unrelated"):
                for model in (False, True) if other else (False,):
                    known = "its front and its trials" if model else "its front"
                    told = f"{other}: {known}" if other else "nothing"
                    if (f"task-{layers}", told, seed) in done:
                        continue
                    given = begun(layers, seed, other, model) if other else {}
                    problem = task(layers, seed)
                    whole = run(problem, OURS, max(MARKS), WORKERS, seed, **given)
                    _keep(path, problem, told, seed, whole)


def _keep(path: Any, problem: MixedProblem, told: str, seed: int, whole: Replayed) -> None:
    row: Row = {"problem": problem.name, "told": told, "seed": seed}
    found = shares(problem, whole, MARKS)
    row |= {f"at {m}": round(found[f"at {m}"], 5) for m in MARKS}
    append_csv(row, path)
    print(row, flush=True)


def measure(path: Any, seeds: int) -> None:
    done = {(r["problem"], r["told"], int(r["seed"])) for r in read(path)}
    for seed in range(seeds):
        for name in PRIORS:
            for told, make in variants(name).items():
                if (name, told, seed) in done:
                    continue
                problem = make(MIXED[name](seed))
                whole = run(problem, OURS, max(MARKS), WORKERS, seed)
                _keep(path, problem, told, seed, whole)


def predicted(seeds: int) -> list[Row]:
    """How far the model is from the expected accuracies of 200 random points, root of the mean
    square, when it knows a few random trials; median over the seeds."""
    found: dict[tuple[int, str], list[list[float]]] = {}
    for layers in (16, 24):
        for seed in range(seeds):
            for told in ("nothing", *OTHERS, *ADVICE):
                found.setdefault((layers, told), []).append(_errors(layers, seed, told))
    rows: list[Row] = []
    for (layers, told), errors in found.items():
        row: Row = {"layers": layers, "told": told, "seeds": seeds}
        medians = [statistics.median(column) for column in zip(*errors, strict=True)]
        rows.append(row | {f"{n} trials": round(m, 4) for n, m in zip(FEW, medians, strict=True)})
    return rows


def _errors(layers: int, seed: int, told: str) -> list[float]:
    here = task(layers, seed)
    space = here.space()
    elsewhere: list[Elsewhere] = []
    if told in OTHERS:
        there = task(layers, seed, OTHERS[told])
        elsewhere = [
            {"point": point, "metrics": {"val_accuracy": _measured(there, spec, i)}}
            for i, (point, spec) in enumerate(_random_points(space, ELSEWHERE, seed + 200))
        ]
    if told in ADVICE:
        space = replace(space, **advised(layers, seed, ADVICE[told]))
    objectives = here.config.front_objectives
    asked = Problem(space, objectives, [0.1, 1.1], {}, ["flops"], lambda point: True, elsewhere)
    sampler = FreeCostSampler(asked, 0)
    own = _random_points(space, max(FEW), seed + 100)
    others = _random_points(space, 200, seed)
    true = np.array([here.quality(spec) for _, spec in others])
    unknown = [sampler._atlas.at(point) for point, _ in others]
    errors = []
    for count in FEW:
        known = [sampler._atlas.at(point) for point, _ in own[:count]]
        sampler._encode([*known, *unknown])
        quality = np.array([_measured(here, spec, i) for i, (_, spec) in enumerate(own[:count])])
        rng = np.random.default_rng(0)
        model = QualityModel(sampler._rows(known), quality, np.zeros(count), rng)
        apart = model.expected(sampler._rows(unknown)) - true
        errors.append(float(np.sqrt((apart**2).mean())))
    return errors


def _measured(problem: MixedProblem, spec: TrialSpec, number: int) -> float:
    return problem.quality(spec) + NOISE * float(np.random.default_rng(number).normal())


def _random_points(space: Space, count: int, seed: int) -> list[tuple[dict[str, Any], TrialSpec]]:
    """Points whose share of binary layers is uniform."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        share, point = rng.random(), {"method": "bnn"}

        def draw(key: str, domain: Domain, share: float = share, point: Any = point) -> Any:
            binary = "B" if rng.random() < share else "F"
            point[key] = binary if key.startswith("plan.") else random_value(domain, rng)
            return point[key]

        spec = space.walk(draw)
        found.append((point, spec))
    return found


def read(path: Any) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def summary(rows: list[dict[str, str]]) -> list[Row]:
    """The median over the seeds."""
    found: list[Row] = []
    for name, told in dict.fromkeys((r["problem"], r["told"]) for r in rows):
        members = [r for r in rows if (r["problem"], r["told"]) == (name, told)]
        line: Row = {"problem": name, "told": told, "seeds": len(members)}
        for mark in MARKS:
            line[f"at {mark}"] = statistics.median(float(r[f"at {mark}"]) for r in members)
        found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--of", choices=("priors", "transfer", "advice", "model"), default="priors")
    parser.add_argument("--table", action="store_true", help="only what the CSV has")
    args = parser.parse_args()
    if args.of == "model":
        rows = predicted(args.seeds)
        write_csv(rows, csv_path("beliefs-model", ("optuna",)))
        print(format_table(rows))
        return
    path = csv_path("beliefs", ("optuna",))
    if not args.table:
        parts = {"priors": measure, "transfer": transfers, "advice": advice}
        parts[args.of](path, args.seeds)
    print(format_table(summary(read(path))))


if __name__ == "__main__":
    main()
