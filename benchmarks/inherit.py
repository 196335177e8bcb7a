"""What inheriting is worth: the true hypervolume after so many epochs, beside trials from scratch
and trials that start from one shared pretraining, by real training.

    python -m benchmarks.inherit                            # a quarter of an hour of one core
    python -m benchmarks.inherit --problems digits --seeds 0 1
    python -m benchmarks.inherit --kept                     # the bars from the kept CSV

Every search is the product's own ledger, sampler and rules (testbed/simulator.py), one trial at a
time; its trials are trained, and looks begin with the weights that their parents left. All epochs
count, those of looks, of trainings from scratch and of the pretraining, in units of a whole trial.
The hypervolume is that of the points which the search shows as its front, from the accuracy of
their networks on the test part, which no search sees; from chance and 1.1 times the flops in full
precision, as a share of that box. What is in the CSV is not run again."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.table import Row, bar, csv_path, format_table, read_csv, write_csv
from bitfront.search.config.load import load
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.inheriting import inheriting_report
from bitfront.search.front import Objective, non_dominated
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.states import TrialState
from bitfront.spaces.space import Space
from bitfront.trainables import training
from bitfront.trainables.data import Part, load_test
from bitfront.trainables.task import TrialSpec
from testbed import truth
from testbed.problems import CHANCE, volume
from testbed.simulator import simulate

PROBLEMS = ("digits", "fashion", "cifar")
RULES = ("scratch", "pretrain", "inherit")
# Trials of a search, or points where it looks at them first.
TRIALS, POINTS = 45, 30
MARKS = (8, 10, 12, 15, 20, 25, 30, 36, 45)
# The share of a trial's epochs that a look trains, and a trial that starts from the pretraining.
SHORT = 0.2
# Examples of the test part that every network is measured on, at most.
TESTED = 2000
PACKAGES = ("torch", "optuna")
OBJECTIVES = [Objective("val_accuracy", True), Objective("flops", False)]
BOX = (1 - CHANCE) * 1.1


class Trained:
    """Answers a search by training, and keeps what it has trained for others."""

    def __init__(
        self,
        known: dict[str, Any],
        test: Part,
        data: tuple[Part, Part],
        pretrained: training.PretrainedCache,
    ) -> None:
        self._known, self._test, self._data, self._pretrained = known, test, data, pretrained
        self.tested: dict[str, float] = {}
        """the accuracy on the test part, by trial"""
        self._left: dict[str, bytes] = {}

    def __call__(self, entry: Entry) -> list[float]:
        if entry.looking and entry.look is not None:
            run = self._run(training.look_spec(entry.spec, entry.look.epochs))
            run.inherited = training.opened_bequest(self._left[entry.look.parent])
            return _to_its_end(run)
        key = entry.spec.fingerprint(length=32)
        if key not in self._known:
            run = self._run(entry.spec)
            reached = _to_its_end(run)
            tested = run.test(self._test, run.spec)["val_accuracy"]
            self._known[key] = reached, tested, training.bequest(run.model)
        curve: list[float]
        curve, self.tested[entry.id], self._left[entry.id] = self._known[key]
        return curve

    def _run(self, spec: TrialSpec) -> training.Training:
        return training.Training(
            spec, *self._data, validate_each_epoch=False, pretrained=self._pretrained
        )


def _to_its_end(run: training.Training) -> list[float]:
    """The accuracy after the last epoch, once for every epoch: nothing here looks at the others."""
    while not run.done:
        run.epoch()
    return [run.history[-1]["val_accuracy"]] * len(run.history)


def problem(name: str, rule: str, seed: int, trials: int) -> tuple[SearchConfig, Space]:
    """The search of a rule on the task of a truth table."""
    whole = truth.search(name)[0].task.epochs
    short = max(1, -(-int(whole * SHORT * 100) // 100))
    sets = [f"search.seed={seed}", f"search.trials={trials}", "search.sampler=free-cost"]
    if rule == "pretrain":
        sets += [f"task.pretrain.epochs={whole}", f"task.epochs={short}"]
    if rule == "inherit":
        sets += [f"search.inherit={{epochs: {SHORT}}}"]
    return load(truth.FOLDER / f"{name}.yaml", sets)


def run(name: str, rule: str, seed: int, known: dict[str, Any], size: float = 1.0) -> Row:
    """One search, with the true hypervolume when so many whole trials' worth of epochs had been
    trained, and at its end."""
    trials = round(size * (POINTS if rule == "inherit" else TRIALS))
    config, space = problem(name, rule, seed, trials)
    task = config.task
    whole = truth.search(name)[0].task.epochs
    test = load_test(task.dataset, task.data_dir, task.normalize)
    test = test.take(TESTED, 0) if len(test) > TESTED else test
    with tempfile.TemporaryDirectory() as folder:
        cache = training.PretrainedCache(Path(folder))
        answer = Trained(known, test, training.search_data(task), cache)
        found = simulate(config, space, answer, workers=1)
    entries = list(found.session.ledger.entries.values())
    before = whole if rule == "pretrain" else 0
    full = max(costs["flops"] for costs in space.full_costs())
    row: Row = {"problem": name, "rule": rule, "seed": seed}
    for mark in (*MARKS, None):
        done = [
            e
            for e, used in zip(found.ended, found.epochs, strict=True)
            if e.state == TrialState.COMPLETE and (mark is None or used + before <= mark * whole)
        ]
        front = [done[i] for i in non_dominated([e.values or [] for e in done], OBJECTIVES)]
        row["end" if mark is None else f"at {mark}"] = _true(front, answer.tested, full)
    row["epochs"] = round((sum(e.epochs_trained for e in entries) + before) / whole, 2)
    row["complete"] = sum(e.state == TrialState.COMPLETE for e in entries)
    if config.search.inherit is not None:
        told = inheriting_report(config, entries)
        row |= {"looks": told.looks, "offset": told.offset, "deviation": told.deviation}
        row["tau"] = _tau(entries)
    return row


def _true(front: Sequence[Entry], tested: dict[str, float], full: float) -> float:
    """The hypervolume of a front by the accuracy on the test part."""
    import numpy as np

    if not front:
        return 0.0
    accuracy = np.array([tested[e.id] for e in front])
    cost = np.array([e.costs["flops"] / full for e in front])
    return round(volume(accuracy, cost) / BOX, 5)


def _tau(entries: Sequence[Entry]) -> float | None:
    """Kendall's tau of look and end, over what was trained from scratch after a look."""
    from scipy.stats import kendalltau

    pairs = [
        (e.look.history[-1]["val_accuracy"], e.metrics["val_accuracy"])
        for e in entries
        if e.look is not None and e.look.history and e.state == TrialState.COMPLETE
    ]
    return round(float(kendalltau(*zip(*pairs, strict=True)).statistic), 3) if pairs else None


def thirds(rows: Sequence[Row]) -> list[Row]:
    """Of every search that inherits: what it came to, and what trials from scratch had with three
    times the epochs, with as many, and at all; at the mark below."""
    known = {(r["problem"], r["rule"], str(r["seed"])): r for r in rows}
    found: list[Row] = []
    for (name, rule, seed), row in known.items():
        scratch = known.get((name, "scratch", seed))
        if rule == "scratch" or scratch is None:
            continue
        epochs, end = float(str(row["epochs"])), float(str(row["end"]))

        def at(share: float, of: Row = scratch, epochs: float = epochs) -> float:
            mark = max([m for m in MARKS if m <= share * epochs], default=MARKS[0])
            return float(str(of[f"at {mark}"]))

        reached = [m for m in MARKS if float(str(scratch[f"at {m}"])) >= end]
        line: Row = {"problem": name, "rule": rule, "seed": seed, "epochs": epochs, "end": end}
        line |= {"scratch, 3x epochs": at(3), "scratch, as many": at(1)}
        line["scratch needs"] = min(reached, default=None)
        found.append(line)
    return found


def bars(rows: Sequence[Row]) -> list[str]:
    """The hypervolume of trials from scratch at a third of their epochs: the median difference over
    seeds."""
    lines = []
    every = thirds(rows)
    for name in dict.fromkeys(str(r["problem"]) for r in every):
        here = [r for r in every if (r["problem"], r["rule"]) == (name, "inherit")]
        apart = [float(str(r["end"])) - float(str(r["scratch, 3x epochs"])) for r in here]
        if apart:
            what = (
                f"{name}: inheriting over scratch with three times the epochs, {len(apart)} seeds"
            )
            lines.append(bar(what, statistics.median(apart), at_least=0.0))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=csv_path("inherit", PACKAGES))
    parser.add_argument("--kept", action="store_true", help="only read what the CSV has")
    parser.add_argument("--quick", action="store_true", help="a few trials of digits, for CI")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.quick:
        print(format_table([run("digits", rule, 0, {}, size=0.2) for rule in RULES]))
        return
    rows = read_csv(args.out)
    done = {(r["problem"], r["rule"], str(r["seed"])) for r in rows}
    for seed in [] if args.kept else args.seeds:
        for name in args.problems:
            known: dict[str, Any] = {}
            for rule in args.rules:
                if (name, rule, str(seed)) not in done:
                    rows.append(run(name, rule, seed, known))
                    print(rows[-1], flush=True)
                    write_csv(rows, args.out)
    print(format_table(thirds(rows)))
    print("\n".join(bars(rows)))


if __name__ == "__main__":
    main()
