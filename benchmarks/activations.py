"""BinReLU and its four rivals, in full precision and fully binary: the order of MixBin's Table 1 on
a small network and part of CIFAR-10.

    python -m benchmarks.activations --data-dir DATA      # about six minutes of two cores

Table 1 is cResNet-20 on CIFAR-100, 160 epochs. Here: a cresnet of depth 8 and width 8, 6,400 of
8,000 training images, 8 epochs, the other 1,600 for validation. What can agree is the order."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
from typing import Any

from benchmarks.table import bar, csv_path, format_table, write_csv
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.task import Task, TrialSpec

PAPER = {
    "F": {"relu": 65.44, "binrelu": 64.98, "rprelu": 63.83, "hardtanh": 61.15, "identity": 16.40},
    "B": {"rprelu": 53.96, "binrelu": 53.72, "identity": 51.69, "hardtanh": 48.05, "relu": 20.39},
}


def spec_of(activation: str, level: str, seed: int, args: argparse.Namespace) -> TrialSpec:
    task = Task.model_validate(
        {
            "dataset": args.dataset,
            "subset": args.subset,
            "data_dir": args.data_dir,
            "model": {"name": "cresnet", "depth": 8, "width": 8, "activation": activation},
            "epochs": args.epochs,
            "optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 1e-4},
            "schedule": "steps",
            "loss": {"label_smoothing": 0.01},
        }
    )
    plan = level * len(task_cost_table(task).plan_layers)
    return TrialSpec(
        task=task, method=args.method, params={"scale": "channel"}, plan=plan, seed=seed
    ).canonical()


def accuracy(spec: TrialSpec) -> float:
    import torch

    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.parts import search_data

    torch.set_num_threads(1)
    training = Training(spec, *search_data(spec.task))
    while not training.done:
        training.epoch()
    return 100 * training.history[-1]["val_accuracy"]


def agreement(ours: dict[str, float], theirs: dict[str, float]) -> float:
    """Share of the pairs that both put in the same order."""
    pairs = list(itertools.combinations(theirs, 2))
    same = sum((ours[a] > ours[b]) == (theirs[a] > theirs[b]) for a, b in pairs)
    return same / len(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--subset", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--method", default="bi-real")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    points = [(a, level) for level in PAPER for a in PAPER[level]]
    specs = [spec_of(*point, seed, args) for point in points for seed in range(args.seeds)]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        found = pool.map(accuracy, specs, chunksize=1)
    ours: dict[str, dict[str, float]] = {level: {} for level in PAPER}
    rows: list[dict[str, Any]] = []
    for i, (activation, level) in enumerate(points):
        values = found[i * args.seeds : (i + 1) * args.seeds]
        ours[level][activation] = statistics.fmean(values)
        rows.append(
            {
                "layers": "full precision" if level == "F" else "binary",
                "activation": activation,
                "Table 1 %": PAPER[level][activation],
                "here %": ours[level][activation],
                "dataset": args.dataset,
                "images": args.subset,
                "epochs": args.epochs,
                "seeds": args.seeds,
            }
        )
    print(format_table(rows))
    full, binary = ours["F"], ours["B"]
    rest = [v for a, v in full.items() if a != "identity"]
    print(bar("full precision: identity below the others by", min(rest) - full["identity"], 0))
    others = [v for a, v in binary.items() if a != "relu"]
    print(bar("binary: relu below the others by", min(others) - binary["relu"], 0))
    for level, name in (("F", "full precision"), ("B", "binary")):
        gap = max(ours[level].values()) - ours[level]["binrelu"]
        print(bar(f"{name}: binrelu behind the best by", gap, at_most=2))
        print(bar(f"{name}: pairs in the paper's order", agreement(ours[level], PAPER[level]), 0.7))
    write_csv(rows, csv_path("activations", ["torch"]))


if __name__ == "__main__":
    main()
