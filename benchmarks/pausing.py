"""What pausing saves: the share of the true front after as many epochs as 30, 60 and 100 whole
trials have, beside whole trials, early stopping and successive halving, on tables of trainings.

    python -m benchmarks.pausing                            # half an hour of one core
    python -m benchmarks.pausing --problems fashion --seeds 0 1
    pip install syne-tune && python -m benchmarks.pausing --rules moasha
    python -m benchmarks.pausing --kept                     # the bars from the kept CSV
    python -m benchmarks.pausing --tells                    # what a rung tells beyond the model

Every search is the product's own ledger, sampler, searcher and scheduler (testbed/simulator.py), of
100 trials, four at once. It sees the accuracy of one seed; the share is that of the expected
accuracies of the plans it trained to their end, in the columns `front` of those alone that its own
front shows: a plan whose seed was unlucky counts in the former only. Epochs of trials that rest or
were stopped count too. What is in the CSV is not run again."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.linalg import solve_triangular
from scipy.stats import kendalltau

from benchmarks.search import Moasha
from benchmarks.table import Row, bar, csv_path, format_table, read_csv, write_csv
from bitfront.search.config.schema import EarlyStoppingSpec
from bitfront.search.config.sections.pausing import PauseSpec
from bitfront.search.deciding.pausing import Pausing
from bitfront.search.front import Objective, non_dominated
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.search.samplers.surrogate.atlas import likeness
from bitfront.search.samplers.surrogate.model import QualityModel, Rows
from bitfront.search.session.early_stopping import ranking, rung_epoch
from testbed import truth
from testbed.problems import table
from testbed.simulator import simulate

MARKS = (30, 60, 100)
TRIALS, WORKERS = 100, 4
RULES = ("whole", "pause", "early stopping", "halving", "moasha")
PACKAGES = ("optuna",)
OBJECTIVES = [Objective("val_accuracy", True), Objective("flops", False)]


class Halving(Pausing):
    """Asynchronous successive halving (Li et al., 2020, arXiv:1810.05934) with a reduction by three
    and one rung: of all trials that came to it the best third is taken up, ranked as a front is."""

    def next(self) -> Entry | None:
        share = self.spec.rungs[0]
        came = []
        for entry in self._ledger.entries.values():
            at = rung_epoch(share, entry.spec.task.epochs)
            row = next((r for r in entry.history if r.get("epoch") == at), None)
            if row is not None:
                came.append((entry, [row["val_accuracy"], entry.costs["flops"]]))
        best = ranking([values for _, values in came], OBJECTIVES)[: len(came) // 3]
        resting = (came[i][0] for i in best if came[i][0].state == TrialState.PAUSED)
        return next(resting, None)


def run(name: str, rule: str, seed: int) -> Row:
    """One search, with the share of the truth when so many whole trials' worth of epochs had been
    trained, and at its end."""
    problem = table(name, seed)
    spec = PauseSpec() if rule in ("pause", "halving") else None
    search = problem.config.search.model_copy(
        update={
            "sampler": "random" if rule == "moasha" else "free-cost",
            "trials": min(TRIALS, 2**problem.layers),
            "seed": seed,
            "pause": spec,
            "early_stopping": EarlyStoppingSpec() if rule == "early stopping" else None,
        }
    )
    config = problem.config.model_copy(update={"search": search})
    epochs = config.task.epochs
    peer = Moasha(epochs, seed) if rule == "moasha" else None
    other: Callable[..., Pausing] | None = Halving if rule == "halving" else None
    found = simulate(config, problem.space(), problem.answer(seed), WORKERS, peer, pausing=other)
    entries = list(found.session.ledger.entries.values())
    row: Row = {"problem": name, "rule": rule, "seed": seed}
    for mark in MARKS:
        done = [
            e
            for e, used in zip(found.ended, found.epochs, strict=True)
            if used <= mark * epochs and e.state == TrialState.COMPLETE
        ]
        row[f"at {mark}"] = round(problem.share_of(done), 5)
        row[f"strict {mark}"] = round(problem.share_of(done, strict=True), 5)
        front = non_dominated([e.values or [] for e in done], OBJECTIVES)
        row[f"front {mark}"] = round(problem.share_of([done[i] for i in front]), 5)
    whole = [e for e in entries if e.state == TrialState.COMPLETE]
    row["end"] = round(problem.share_of(whole), 5)
    row["complete"] = len(whole)
    row["epochs"] = round(sum(len(e.history) for e in entries) / epochs, 1)
    return row


def tells(name: str, seed: int) -> Row:
    """What the accuracy at a rung tells of the end in a search of whole trials: Kendall's tau of
    both, and the correlation of what the model of the sampler misses them by, each trial predicted
    from all others. The second is what pausing can use: the model knows the rest anyway."""
    problem = table(name, seed)
    search = problem.config.search.model_copy(update={"trials": 60, "seed": seed})
    config = problem.config.model_copy(update={"search": search})
    found = simulate(config, problem.space(), problem.answer(seed), WORKERS)
    plans = np.stack([problem.bits(e.spec.plan) for e in found.ended]).astype(int)
    curves = np.array([[row["val_accuracy"] for row in e.history] for e in found.ended])
    levels = likeness(("F", "B"))
    rows = Rows(
        levels=levels[plans].reshape(len(plans), -1),
        trend=np.stack([problem.cost(plans), 1 - plans.mean(1)], axis=1),
        numeric=np.zeros((len(plans), 0)),
        category=np.zeros((len(plans), 0), np.int64),
        groups=plans.shape[1],
        alike=1 / float(np.linalg.inv((levels @ levels.T).astype(float)).sum()),
        believed=np.zeros((len(plans), 0)),
    )
    line: Row = {"problem": name, "seed": seed}
    end = missed(rows, curves[:, -1])
    for share in (0.3, 0.6):
        early = curves[:, rung_epoch(share, curves.shape[1]) - 1]
        line[f"tau {share}"] = round(float(kendalltau(early, curves[:, -1]).statistic), 3)
        beyond = np.corrcoef(missed(rows, early), end)[0, 1]
        line[f"beyond the model {share}"] = round(float(beyond), 3)
    return line


def missed(rows: Rows, quality: np.ndarray) -> np.ndarray:
    """By how much a model of all other trials misses each."""
    model = QualityModel(rows, quality, np.zeros(len(quality)), np.random.default_rng(0))
    factor = model._factor
    inverse = solve_triangular(factor, np.eye(len(factor)), lower=True)
    return np.asarray(model._weights / (inverse**2).sum(0))


def summary(rows: list[Row]) -> list[Row]:
    """Medians over the seeds; at equal epochs the median difference to whole trials."""
    found: list[Row] = []
    for problem, rule in dict.fromkeys((r["problem"], r["rule"]) for r in rows):
        here = [r for r in rows if (r["problem"], r["rule"]) == (problem, rule)]
        line: Row = {"problem": problem, "rule": rule, "seeds": len(here)}
        for column in (*(f"at {mark}" for mark in MARKS), "front 60", "front 100", "end", "epochs"):
            line[column] = round(statistics.median(float(str(r[column])) for r in here), 4)
        apart = _apart(rows, str(problem), str(rule), "at 60", "at 60")
        line["over whole at 60"] = round(statistics.median(apart), 4) if apart else None
        found.append(line)
    return found


def _apart(rows: list[Row], problem: str, rule: str, column: str, of_whole: str) -> list[float]:
    """The share of a rule less that of whole trials, seed by seed."""
    known = {(r["problem"], r["rule"], str(r["seed"])): r for r in rows}
    return [
        float(str(row[column])) - float(str(whole[of_whole]))
        for (p, r, seed), row in known.items()
        if (p, r) == (problem, rule) and (whole := known.get((problem, "whole", seed))) is not None
    ]


def bars(rows: list[Row]) -> list[str]:
    """Pausing with 60 % of the epochs against 100 whole trials, and against whole trials at equal
    epochs, less the deviation of those over seeds."""
    lines = []
    for problem in dict.fromkeys(str(r["problem"]) for r in rows):
        shares = [
            float(str(r["at 60"])) for r in rows if (r["problem"], r["rule"]) == (problem, "whole")
        ]
        for of_whole, name in (("at 100", "100 whole trials"), ("at 60", "equal epochs")):
            apart = _apart(rows, problem, "pause", "at 60", of_whole)
            if len(apart) < 2:
                continue
            noise = statistics.stdev(shares) if of_whole == "at 60" else 0.0005
            what = f"{problem}: pausing at 60 over {name}"
            lines.append(bar(what, statistics.median(apart), at_least=-round(noise, 4)))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=truth.names(), choices=truth.names())
    parser.add_argument("--rules", nargs="+", default=list(RULES[:-1]), choices=RULES)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(6)))
    parser.add_argument("--out", type=Path, default=csv_path("pausing", PACKAGES))
    parser.add_argument("--tells", action="store_true", help="only what a rung tells, two seeds")
    parser.add_argument("--kept", action="store_true", help="only read what the CSV has")
    args = parser.parse_args()
    if args.tells:
        told = [tells(name, seed) for name in args.problems for seed in (0, 1)]
        print(format_table(told))
        write_csv(told, csv_path("pausing-tells", PACKAGES))
        return
    rows = read_csv(args.out)
    known = {(r["problem"], r["rule"], str(r["seed"])) for r in rows}
    for seed in [] if args.kept else args.seeds:
        for name in args.problems:
            for rule in args.rules:
                if (name, rule, str(seed)) not in known:
                    rows.append(run(name, rule, seed))
                    print(rows[-1], flush=True)
                    write_csv(rows, args.out)
    print(format_table(summary(rows)))
    print("\n".join(bars(rows)))


if __name__ == "__main__":
    main()
