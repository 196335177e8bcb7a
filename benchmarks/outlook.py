"""How well a search knows what its next ten trials will gain, and whether it ends in time.

    python -m benchmarks.outlook                          # the problems the ranges were made on
    python -m benchmarks.outlook --problems fragile pruning-other --seeds 20 21   # others
    python -m benchmarks.outlook --useless                # where nothing can be learned

Searches of the product on problems of the testbed. Every forecast that the ledger notes is compared
with what the ten trials after it really added to the hypervolume of the front, as measured."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from typing import Any

import numpy as np

from benchmarks.search import OURS, problems, run
from benchmarks.table import Row, csv_path, format_table, write_csv
from bitfront.search.deciding.outlook import AHEAD, Outlook
from bitfront.search.front import Front
from bitfront.search.model_health import HEALTH
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import Replayed
from testbed.problems import CHANCE, Problem, synthetic

FITTED = (
    *("digits", "fashion", "synthetic-20-smooth", "synthetic-20-rough", "failing", "levels"),
    *("mixed", "cliff", "pruning"),
)
GAINS = (0.001, 0.005, 0.01)


def followed(problem: Any, trials: int, workers: int, seed: int) -> tuple[list[Outlook], Replayed]:
    """The forecasts of a search, in their order."""
    found: list[Outlook] = []

    def ended(session: Session) -> None:
        ahead = session.ledger.outlook
        if ahead is not None and (not found or found[-1] != ahead):
            found.append(ahead)

    return found, run(problem, OURS, trials, workers, seed, ended)


def growth(whole: Replayed) -> list[float]:
    """The hypervolume after every trial that ended, as the search measured it."""
    session = whole.session
    front = Front(session.config.front_objectives)
    volumes = []
    for entry in whole.ended:
        if entry.values is not None:
            front.add(entry.id, entry.values)
        volumes.append(front.hypervolume(session.ledger.reference))
    return volumes


def measure(args: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for name in args.problems:
        for workers in args.workers:
            for seed in args.seeds:
                problem = problems()[name](seed)
                layers = problem.layers
                trials = min(args.trials, 2**layers) if layers else args.trials
                outlooks, whole = followed(problem, trials, workers, seed)
                volumes = growth(whole)
                for each in outlooks:
                    if each.trials + AHEAD > len(volumes):
                        continue
                    before, after = volumes[each.trials - 1], volumes[each.trials + AHEAD - 1]
                    row: Row = {"problem": name, "workers": workers, "seed": seed}
                    told = {"gain": round(after / before - 1, 7), **each.as_json()}
                    rows.append(row | told)
                print(name, workers, seed, flush=True)
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """By problem: the mean gain and the expected one, and how often the gain was in its range."""
    found: list[Row] = []
    names = list(dict.fromkeys(str(r["problem"]) for r in rows))
    for name in [*names, "all"]:
        of = [r for r in rows if name in ("all", r["problem"])]
        gain, expected, low, high = (
            np.array([float(str(r[key])) for r in of])
            for key in ("gain", "expected", "low", "high")
        )
        line: Row = {"problem": name, "forecasts": len(of)}
        line |= {"gained, %": round(100 * gain.mean(), 2)}
        line |= {"expected, %": round(100 * expected.mean(), 2)}
        line |= {"below, %": round(100 * float((gain < low - 1e-9).mean()), 1)}
        line |= {"above, %": round(100 * float((gain > high + 1e-9).mean()), 1)}
        line |= {
            "within, %": round(100 - float(str(line["below, %"])) - float(str(line["above, %"])), 1)
        }
        found.append(line)
    return found


def endings(rows: list[Row]) -> list[Row]:
    """Where `until.gain` would have ended the searches, and how often the ten trials after it would
    have gained more."""
    found: list[Row] = []
    for gain in GAINS:
        first: dict[tuple[Any, ...], Row] = {}
        for row in rows:
            key = (row["problem"], row["workers"], row["seed"])
            if float(str(row["high"])) < gain:
                first.setdefault(key, row)
        known = {(r["problem"], r["workers"], r["seed"]) for r in rows}
        more = [r for r in first.values() if float(str(r["gain"])) >= gain]
        at = [int(str(r["trials"])) for r in first.values()]
        line: Row = {"until, %": 100 * gain, "searches": len(known), "ended": len(first)}
        line |= {"median trial": statistics.median(at) if at else None, "too early": len(more)}
        found.append(line)
    return found


def useless(seed: int) -> Problem:
    """20 layers of which nothing can be learned: the accuracy of a plan is drawn, whatever the
    others have."""
    base = synthetic(20, False, seed)

    def accuracy(bits: np.ndarray) -> np.ndarray:
        codes = (np.asarray(bits) @ (1 << np.arange(20))).astype(np.uint64)
        mixed = (codes + np.uint64(seed + 1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        share = (mixed ^ (mixed >> np.uint64(32))) >> np.uint64(11)
        return np.asarray(CHANCE + 0.85 * share.astype(np.float64) / 2**53)

    def observed(bits: np.ndarray, seed: int) -> list[float]:
        return [float(accuracy(bits[None])[0])] * base.config.task.epochs

    name = "useless"
    return dataclasses.replace(base, name=name, accuracy=accuracy, observed=observed)


def against_random(args: argparse.Namespace) -> list[Row]:
    """The share of the true hypervolume that a search finds where nothing can be learned, and how
    often its model said so."""
    rows: list[Row] = []
    for seed in args.seeds:
        problem = useless(seed)
        for sampler in (OURS, "random"):
            for workers in args.workers:
                said: list[bool] = []

                def ended(session: Session, said: list[bool] = said) -> None:
                    health = session.ledger.noted(HEALTH)
                    if health is not None:
                        said.append(health["explained"] <= 0)

                whole = run(problem, sampler, args.trials, workers, seed, ended)
                marks = [n for n in (25, 50, 100) if n <= len(whole.ended)]
                shares = {f"at {n}": problem.share_of(whole.ended[:n]) for n in marks}
                row: Row = {"sampler": sampler, "workers": workers, "seed": seed, **shares}
                rows.append(row | {"blind": statistics.fmean(said) if said else None})
                print(sampler, workers, seed, shares, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=list(FITTED))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--workers", nargs="+", type=int, default=[4])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--useless", action="store_true")
    parser.add_argument("--name", default="outlook", help="of the CSV")
    args = parser.parse_args()
    if args.useless:
        rows = against_random(args)
        write_csv(rows, csv_path("useless", ("optuna",)))
        print(format_table(rows))
        return
    rows = measure(args)
    write_csv(rows, csv_path(args.name, ("optuna",)))
    print(format_table(summary(rows)))
    print(format_table(endings(rows)))


if __name__ == "__main__":
    main()
