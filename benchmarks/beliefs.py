"""What it is worth to tell a search what is believed, right or wrong: a prior on every setting.

    python -m benchmarks.beliefs                # continues where the CSV ends
    python -m benchmarks.beliefs --table        # the medians of what it has

A right prior is the best value of a setting on a grid, in the middle of all others; a wrong one is
the worst value there. Searches are simulated as in `benchmarks.search`."""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.search import OURS, run, shares
from benchmarks.table import Row, append_csv, csv_path, format_table
from bitfront.spaces.space import middle
from bitfront.trainables.parameters import Choice, Domain
from testbed.mixed import MIXED, MixedProblem

MARKS = (10, 25, 50)
WORKERS = 4
PRIORS = ("cliff", "mixed", "pruning", "pruning-other")
GRID = 17


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


def measure(path: Any, seeds: int) -> None:
    done = {(r["problem"], r["told"], int(r["seed"])) for r in read(path)}
    for seed in range(seeds):
        for name in PRIORS:
            for told, make in variants(name).items():
                if (name, told, seed) in done:
                    continue
                problem = make(MIXED[name](seed))
                whole = run(problem, OURS, max(MARKS), WORKERS, seed)
                row: Row = {"problem": name, "told": told, "seed": seed}
                found = shares(problem, whole, MARKS)
                row |= {f"at {m}": round(found[f"at {m}"], 5) for m in MARKS}
                append_csv(row, path)
                print(row, flush=True)


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
    parser.add_argument("--table", action="store_true", help="only what the CSV has")
    args = parser.parse_args()
    path = csv_path("beliefs", ("optuna",))
    if not args.table:
        measure(path, args.seeds)
    print(format_table(summary(read(path))))


if __name__ == "__main__":
    main()
