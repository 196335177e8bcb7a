"""What it is worth that a search knows the limits on what is measured: the same searches with the
limits, and with the limits applied to their fronts only when they have ended.

    python -m benchmarks.measured_limits

Three problems of 14 layers, all plans listed: a least accuracy that few plans have; a second metric
that other layers decide, which must not be too large; both. The share is that of the hypervolume of
all plans that keep the limits, by expected metrics."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, csv_path, format_table, write_csv
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.bounds import Limit
from bitfront.search.config.space import build_space
from bitfront.search.deciding.limits import missed
from bitfront.search.ledger.entry import Entry
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import MemoryFolder, play
from bitfront.trainables.task import TrialSpec
from testbed.mixed import Layers, PricedSpace
from testbed.problems import volume

LAYERS = 14
NOISE = 0.003
MARKS = (25, 50, 100)
# By problem, the share of all plans that keep each limit.
SHARES = {
    "accuracy": {"val_accuracy": 0.03},
    "second metric": {"val_loss": 0.05},
    "both": {"val_accuracy": 0.2, "val_loss": 0.2},
}


@dataclass(frozen=True)
class Limited:
    """Plans with an accuracy, a second metric (less is better) and a cost."""

    limits: dict[str, Limit]
    accuracy: np.ndarray
    loss: np.ndarray
    cost: np.ndarray

    @staticmethod
    def drawn(shares: dict[str, float], seed: int) -> Limited:
        bits = (np.arange(1 << LAYERS)[:, None] >> np.arange(LAYERS)[::-1]) & 1
        one, other = Layers.drawn(LAYERS, "FB", seed), Layers.drawn(LAYERS, "FB", seed + 1000)
        accuracy, loss = one.accuracy(bits), 2 * (1 - other.accuracy(bits))
        limits = {}
        for name, share in shares.items():
            if name == "val_accuracy":
                limits[name] = Limit(min=float(np.quantile(accuracy, 1 - share)))
            else:
                limits[name] = Limit(max=float(np.quantile(loss, share)))
        return Limited(limits, accuracy, loss, one.cost(bits))

    def place(self, plan: str) -> int:
        return int(plan.replace("F", "0").replace("B", "1"), 2)

    def metrics(self, plan: str) -> dict[str, float]:
        at = self.place(plan)
        return {"val_accuracy": float(self.accuracy[at]), "val_loss": float(self.loss[at])}

    def share_of(self, entries: list[Entry]) -> float:
        """The hypervolume of the trials that keep the limits, of that of all plans that do."""
        all_kept = np.ones(len(self.cost), bool)
        for name, limit in self.limits.items():
            column = self.accuracy if name == "val_accuracy" else self.loss
            all_kept &= column >= limit.min if limit.min is not None else column <= limit.max
        whole = volume(self.accuracy[all_kept], self.cost[all_kept])
        plans = [e.spec.plan for e in entries]
        here = [self.place(p) for p in plans if not missed(self.limits, self.metrics(p))]
        return volume(self.accuracy[here], self.cost[here]) / whole if here else 0.0


def run(problem: Limited, sampler: str, limited: bool, trials: int, seed: int) -> list[Entry]:
    """The trials of a search, four at once, in the order in which they ended."""
    task = {"dataset": "digits", "model": {"name": "mlp", "depth": LAYERS + 1, "width": 2}}
    config = SearchConfig.model_validate(
        {
            "name": "limited",
            "task": {**task, "epochs": 1},
            "space": {"method": "bnn", "plan": {"per": "layer", "levels": ["F", "B"]}},
            "limits": {n: v.model_dump() for n, v in problem.limits.items()} if limited else {},
            "search": {"sampler": sampler, "trials": trials, "seed": seed},
        }
    )
    base = build_space(config)

    def price(spec: TrialSpec) -> float:
        return float(problem.cost[problem.place(spec.plan)])

    space = PricedSpace(**{p.name: getattr(base, p.name) for p in fields(base)}, price=price)

    def answer(entry: Entry) -> list[dict[str, Any]]:
        noise = np.random.default_rng([seed, problem.place(entry.spec.plan)]).normal(size=2)
        told = problem.metrics(entry.spec.plan)
        told["val_accuracy"] += NOISE * noise[0]
        told["val_loss"] += NOISE * noise[1]
        return [{"epoch": 1, **told}]

    with tempfile.TemporaryDirectory() as folder:
        session = Session(config, space, MemoryFolder(Path(folder)), tracker=None)
        return play(session, answer, 4).ended


def measure(seeds: int, samplers: list[str], trials: int) -> list[Row]:
    rows: list[Row] = []
    for name, shares in SHARES.items():
        for sampler in samplers:
            for limited in (False, True):
                for seed in range(seeds):
                    problem = Limited.drawn(shares, seed)
                    ended = run(problem, sampler, limited, trials, seed)
                    known = {n: problem.share_of(ended[:n]) for n in MARKS if n <= trials}
                    kept = [not missed(problem.limits, problem.metrics(e.spec.plan)) for e in ended]
                    told = {f"at {n}": round(share, 5) for n, share in known.items()}
                    row: Row = {"problem": name, "sampler": sampler, "limits": limited}
                    rows.append(row | {"seed": seed, **told, "kept": sum(kept)})
                print(name, sampler, limited, flush=True)
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """Medians over the seeds."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["sampler"], row["limits"]), []).append(row)
    found: list[Row] = []
    for (problem, sampler, limits), members in groups.items():
        line: Row = {"problem": problem, "sampler": sampler, "limits known": limits}
        for key in [k for k in members[0] if k.startswith("at ") or k == "kept"]:
            line[key] = round(statistics.median(float(str(m[key])) for m in members), 3)
        found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--samplers", nargs="+", default=["free-cost"])
    args = parser.parse_args()
    rows = measure(args.seeds, args.samplers, args.trials)
    write_csv(rows, csv_path("measured-limits", ("optuna",)))
    print(format_table(summary(rows)))


if __name__ == "__main__":
    main()
