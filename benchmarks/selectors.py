"""Selectors against the truth: how far is the plan of each from the best plan of its cost?

    python -m benchmarks.selectors                    # all selectors, the tables of the defaults
    python -m benchmarks.selectors --proof            # the same on tables that chose no default
    python -m benchmarks.selectors --switches         # every switch setting of MixBin's selectors
    python -m benchmarks.selectors --scoring          # seconds of a complete pass on cresnet20

Regret, in points of validation accuracy: the best plan of the table that costs no more than the
selector's plan, less the selector's plan, both trained as the table's trials were. Accuracies are
means over the table's seeds. A selector works on the table's own task, with `--seeds` seeds of its
own; random and pseudo-random draw 200 and 50 plans for each. Epochs are what a selector trains
before its plan is known, for all budgets together. Where not every budget can be met (the first
layer of a perceptron is most of it), a budget is a share of the way from the cheapest plan to full
precision. Network slimming, the structured-pruning baseline, is trained here at every budget.

The defaults of `mixbin-grad` and `mixbin-loss` are the switches of least regret on the tables
CHOSEN_ON, so that regrets there favour them; on the tables PROOF nothing was chosen."""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import bar, csv_path, format_table, write_csv
from bitfront.spaces.costs import costs_of
from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.selectors import SELECTORS, Selection, SelectionSpec, select
from bitfront.trainables.task import Task, TrialSpec
from testbed import truth

CHOSEN_ON = ("digits", "fashion")
PROOF = ("mnist", "mnist-resnet")
BUDGETS = (80, 60, 40, 20, 10)
RULE = "nearest"
DRAWS = {"random": 200, "pseudo-random": 50}
BARS = (40, 20, 10)
# Half a hundred trainings a table: short ones.
QUICK: dict[str, dict[str, Any]] = {"iterative": {"epochs": 3}}
SETTINGS: dict[str, dict[str, tuple[Any, ...]]] = {
    "mixbin-loss": {
        "direction": ("bin2fp", "fp2bin"),
        "update": ("greedy", "one-shot"),
        "per_flop": (False, True),
    },
    "mixbin-grad": {
        "direction": ("bin2fp", "fp2bin"),
        "update": ("greedy", "one-shot"),
        "score": ("step", "gradient"),
        "per_weight": (False, True),
        "per_flop": (False, True),
    },
    "clado": {"pairs": (True, False)},
}


@dataclass
class Problem:
    """A truth table and what its plans cost."""

    name: str
    truth: truth.Truth
    data_dir: str | None

    def __post_init__(self) -> None:
        self.table: CostTable = task_cost_table(self.truth.config.task)
        self.pct = self.truth.costs["flops_pct"]
        self.accuracy = dict(zip(self.truth.plans, self.truth.final, strict=True))
        self.cost = dict(zip(self.truth.plans, self.pct, strict=True))

    def budget_pct(self, budget: float) -> float:
        """The budget itself, where every one of BUDGETS can be met; else that share of the way
        from the cheapest plan to full precision."""
        least = float(self.pct.min())
        return budget if least <= min(BUDGETS) else least + budget / 100 * (100 - least)

    def regret(self, cost: float, accuracy: float) -> float:
        """Points to the best plan that costs no more, or to the cheapest where none does."""
        within = self.pct <= max(cost, float(self.pct.min())) + 1e-9
        return 100 * (float(self.truth.final[within].max()) - accuracy)

    def spec(self, selector: str, params: dict[str, Any], seed: int) -> SelectionSpec:
        task = self.truth.config.task.model_copy(update={"data_dir": self.data_dir})
        method, given = truth.method_of(self.truth.config)
        return SelectionSpec(
            selector=selector,
            params=params,
            task=task,
            method=method,
            method_params=given,
            seed=seed,
        )


def regrets(problem: Problem, found: Selection, budget: float) -> list[float]:
    """One a draw."""
    selector = found.spec.build()
    level, seed = found.spec.level, found.spec.seed
    out = []
    for draw in range(DRAWS.get(found.spec.selector, 1)):
        percent, drawn = problem.budget_pct(budget), 1000 * seed + draw
        if selector.trained:
            plan = found.plan(problem.table, percent, RULE, level, drawn)
        else:
            order = list(selector.order(problem.table, drawn))
            plan = selector.plan(problem.table, order, percent, RULE, level, drawn)
        out.append(problem.regret(problem.cost[plan], problem.accuracy[plan]))
    return out


def measure(
    problem: Problem, selector: str, params: dict[str, Any], seeds: int, pretrained: Path
) -> dict[str, Any]:
    """A row: mean regret at every budget, and what the selector took."""
    found = [
        select(problem.spec(selector, params, seed), pretrained, pretrained)
        for seed in range(seeds)
    ]
    row: dict[str, Any] = {"table": problem.name, "selector": selector}
    row["switches"] = ", ".join(f"{k} {v}" for k, v in params.items())
    for budget in BUDGETS:
        values = [r for selection in found for r in regrets(problem, selection, budget)]
        row[f"regret@{budget}"] = round(statistics.fmean(values), 3)
    row["mean@40,20,10"] = round(statistics.fmean(row[f"regret@{b}"] for b in BARS), 3)
    row["epochs"] = found[0].training_epochs
    row["examples scored"] = found[0].scored_examples
    return row


def slimmed(problem: Problem, budget: float, seed: int, work: Path) -> tuple[float, float]:
    """(flops in percent, accuracy) of a network that lost channels, trained as a search does."""
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.parts import search_data
    from bitfront.trainables.training.pretraining import PretrainedCache

    spec = problem.spec("slimming", {}, seed)
    chosen = select(spec, work, work)
    params = spec.build().settings(spec.task, chosen, problem.budget_pct(budget), seed)
    plan = "S" * len(problem.table.plan_layers)
    trial = TrialSpec(task=spec.task, method="slimming", params=params, plan=plan, seed=seed)
    data = search_data(spec.task)
    run = Training(trial, *data, validate_each_epoch=False, pretrained=PretrainedCache(work))
    while not run.done:
        run.epoch()
    return costs_of(trial)["flops_pct"], run.history[-1]["val_accuracy"]


def measure_slimming(problem: Problem, seeds: int, work: Path) -> dict[str, Any]:
    """Channels removed from a full-precision network instead of bits, at the same budgets."""
    row: dict[str, Any] = {"table": problem.name, "selector": "slimming", "switches": ""}
    for budget in BUDGETS:
        found = [slimmed(problem, budget, seed, work) for seed in range(seeds)]
        values = [problem.regret(*each) for each in found]
        row[f"regret@{budget}"] = round(statistics.fmean(values), 3)
    row["mean@40,20,10"] = round(statistics.fmean(row[f"regret@{b}"] for b in BARS), 3)
    row["epochs"] = float(problem.truth.config.task.epochs)
    return row


def settings(selector: str) -> list[dict[str, Any]]:
    """Every combination of switches that makes a difference."""
    keys = SETTINGS[selector]
    every = [dict(zip(keys, values, strict=True)) for values in itertools.product(*keys.values())]
    return [s for s in every if not (s.get("score") == "gradient" and s["per_weight"])]


def compare(
    problems: list[Problem], names: list[str], seeds: int, switches: bool, pretrained: Path
) -> list[Any]:
    rows = []
    for problem in problems:
        for name in names:
            for params in (
                settings(name) if switches and name in SETTINGS else [QUICK.get(name, {})]
            ):
                if switches and name not in {*SETTINGS, "random"}:
                    continue
                if SELECTORS.get(name).method is not None:
                    rows.append(measure_slimming(problem, seeds, pretrained))
                else:
                    rows.append(measure(problem, name, params, seeds, pretrained))
                print(format_table([rows[-1]]).splitlines()[-1], flush=True)
    return rows


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """MixBin's selectors, our defaults and the paper's procedure, against the mean of random
    plans."""
    lines = []
    for table in dict.fromkeys(row["table"] for row in rows):
        of = {row["selector"]: row for row in rows if row["table"] == table}
        names = [name for name in of if name.startswith("mixbin-")]
        for name, budget in itertools.product(names, BARS):
            key = f"regret@{budget}"
            lines.append(
                bar(f"{table}, {name} at {budget} %", of[name][key], at_most=of["random"][key])
            )
    return lines


def scoring_seconds(threads: int) -> list[dict[str, Any]]:
    """A complete greedy pass of mixbin-grad over cresnet20 at CIFAR's shape and batch: 17 rounds
    of a backward pass over 5,000 images. Images of noise take as long as any."""
    import torch

    from bitfront.trainables.data import Arrays
    from bitfront.trainables.selectors.scores.scoring import Scoring
    from bitfront.trainables.training.checkpoint_files import weights_of
    from bitfront.trainables.training.network import Network

    torch.set_num_threads(threads)
    task = Task.model_validate({"dataset": "cifar10", "model": "cresnet20", "batch_size": 128})
    greedy: dict[str, bool | int | float | str] = {"direction": "bin2fp", "update": "greedy"}
    spec = SelectionSpec(selector="mixbin-grad", params=greedy, task=task)
    noise = Arrays(torch.randn(5000, 3, 32, 32), torch.arange(5000) % 10)
    scoring = Scoring(spec, data=(noise, noise))
    weights = weights_of(Network(scoring.trial("B" * scoring.layers)).model)
    scoring.pretrained = lambda level: weights  # type: ignore[method-assign]
    started = time.perf_counter()
    spec.build().rank(scoring)
    seconds = time.perf_counter() - started
    row = {"what": "mixbin-grad, greedy, cresnet20", "threads": threads, "seconds": seconds}
    return [{**row, "examples scored": scoring.scored_examples}]


def beside(rows: list[dict[str, Any]], path: Path) -> list[Any]:
    """The rows that are kept of other selectors, and these."""
    if not path.exists():
        return rows
    measured = {(row["table"], row["selector"]) for row in rows}
    with path.open(newline="", encoding="utf-8") as lines:
        kept = list(csv.DictReader(lines))
    return [r for r in kept if (r["table"], r["selector"]) not in measured] + rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", help="default: those that chose the defaults")
    parser.add_argument("--proof", action="store_true", help="on the tables that chose nothing")
    parser.add_argument(
        "--selectors", nargs="*", default=list(SELECTORS), help="default: all; rows of others stay"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--switches", action="store_true", help="every setting of MixBin's")
    parser.add_argument("--scoring", action="store_true", help="time a pass on cresnet20 instead")
    parser.add_argument("--threads", type=int, default=2, help="of --scoring")
    parser.add_argument("--data-dir", help="where the data lie")
    parser.add_argument("--work", type=Path, help="keep pretrained networks here")
    args = parser.parse_args()
    if args.scoring:
        rows = scoring_seconds(args.threads)
        lines = [bar("seconds of a complete greedy pass", rows[0]["seconds"], at_most=600)]
        what = "selectors-scoring"
    else:
        tables = args.tables or (PROOF if args.proof else CHOSEN_ON)
        problems = [Problem(name, truth.read(name), args.data_dir) for name in tables]
        with tempfile.TemporaryDirectory() as folder:
            work = args.work or Path(folder)
            rows = compare(problems, args.selectors, args.seeds, args.switches, work)
        whole = not args.switches and "random" in args.selectors
        lines = verdicts(rows) if whole else []
        what = "selectors-switches" if args.switches else "selectors"
        what += "-proof" if args.proof else ""
    print(format_table(rows))
    print("\n".join(lines))
    path = csv_path(what, ["torch"])
    write_csv(rows if args.scoring else beside(rows, path), path)


if __name__ == "__main__":
    main()
