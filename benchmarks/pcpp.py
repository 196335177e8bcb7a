"""Two claims of the ProxConnect++ paper at a small size, epochs stated.

    python -m benchmarks.pcpp fashion     # end-to-end on fashion-mnist: BNN++ against BNN+, 5 seeds
    python -m benchmarks.pcpp cifar10     # binary weights from a pretrained ResNet-20, 2 epochs a
                                          # method; about an hour on two cores

Data are read from --data-dir or BITFRONT_DATA. fashion measures accuracy on a validation split.
cifar10 measures it on the test set, because the pretrained network has seen every training image;
nothing is chosen by it."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import experiments
from benchmarks.table import Row, bar

FASHION_METHODS = ("bnn+", "bnn++")
CIFAR_METHODS = ("pc", "bc", "bnn", "bnn+", "bnn++")
# What the pretrained network's images were normalised with (README of the weights).
NORMALIZE = "imagenet"
POINTS_FROM_FULL = 5.0


def spec_of(task: dict[str, Any], method: str, seed: int, level: str = "W") -> Any:
    from bitfront.trainables.cost import task_cost_table
    from bitfront.trainables.task import Task, TrialSpec

    built = Task.model_validate(task)
    letter = "F" if method == "fp" else level
    plan = letter * len(task_cost_table(built).plan_layers)
    return TrialSpec(task=built, method=method, plan=plan, seed=seed)


def fashion(args: argparse.Namespace) -> tuple[list[Row], list[str]]:
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.parts import search_data

    task = {
        "dataset": "fashion-mnist",
        "model": {"name": "mlp", "depth": 3, "width": 256},
        "epochs": args.epochs or 10,
        "subset": args.subset or 12_000,
        "data_dir": args.data_dir,
        "optimizer": {"name": "adam", "lr": 3e-3},
    }
    rows: list[Row] = []
    means: dict[str, float] = {}
    for method in ("fp", *FASHION_METHODS):
        accuracies, started = [], time.perf_counter()
        for seed in range(args.seeds):
            spec = spec_of(task, method, seed)
            training = Training(spec, *search_data(spec.task), validate_each_epoch=False)
            while not training.done:
                training.epoch()
            training.network.verify()
            accuracies.append(100 * training.history[-1]["val_accuracy"])
        means[method] = statistics.fmean(accuracies)
        rows.append(
            {
                "method": method,
                "epochs": spec.task.epochs,
                "seeds": args.seeds,
                "examples": len(training.train),
                "accuracy, %": round(means[method], 2),
                "std": round(statistics.stdev(accuracies), 2) if args.seeds > 1 else None,
                "seconds a run": round((time.perf_counter() - started) / args.seeds, 1),
            }
        )
    return rows, [bar("bnn++ minus bnn+, points", means["bnn++"] - means["bnn+"], at_least=0.0)]


def cifar10(args: argparse.Namespace) -> tuple[list[Row], list[str]]:
    from bitfront.trainables.data import load_test, load_train
    from bitfront.trainables.training.evaluation import evaluate
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.network import device_from_resources
    from bitfront.trainables.training.norms import recalibrate

    found = [f for f in Path(args.data_dir or ".", "weights").rglob("*resnet20*") if f.is_file()]
    if not found:
        raise SystemExit("no file *resnet20* below weights/ of the data folder: see --data-dir")
    device = device_from_resources(1.0)
    train = load_train("cifar10", args.data_dir, NORMALIZE)
    test = load_test("cifar10", args.data_dir, NORMALIZE)
    if args.subset:
        train = train.take(args.subset, 0)
    task = {
        "dataset": "cifar10",
        "model": "resnet20",
        "epochs": args.epochs or 2,
        "data_dir": args.data_dir,
        "optimizer": {"name": "sgd", "lr": 0.01, "weight_decay": 1e-4},
        "normalize": NORMALIZE,
        "pretrain": str(found[0]),
    }

    def started(method: str) -> Any:
        spec = spec_of(task, method, 0)
        return Training(spec, train, test, device, validate_each_epoch=False)

    def row(method: str, epochs: int, accuracy: float, seconds: float) -> Row:
        return {
            "method": method,
            "epochs": epochs,
            "examples": len(train),
            "test accuracy, %": round(100 * accuracy, 2),
            "seconds": round(seconds, 1),
        }

    fp = started("fp")
    fp._begin_phase(0)
    full = evaluate(fp.model, fp.validation)["val_accuracy"]
    rows = [row("fp, as pretrained", 0, full, 0.0)]
    bars = []
    ptb = started("ptb")
    ptb._begin_phase(0)
    before = time.perf_counter()
    recalibrate(ptb.model, ptb.train, 128)
    signs = evaluate(ptb.model, ptb.validation)["val_accuracy"]
    rows.append(row("ptb", 0, signs, time.perf_counter() - before))
    for method in CIFAR_METHODS:
        training, before = started(method), time.perf_counter()
        while not training.done:
            training.epoch()
            print(f"{method}: epoch {training.epochs_done} done", flush=True)
        training.network.verify()
        accuracy = training.history[-1]["val_accuracy"]
        rows.append(row(method, training.epochs_done, accuracy, time.perf_counter() - before))
        lost = 100 * (full - accuracy)
        bars.append(bar(f"{method}: points below full precision", lost, at_most=POINTS_FROM_FULL))
    least = min(float(r["test accuracy, %"] or 0) for r in rows[2:])
    bars.append(bar("ptb: points below the worst of them", least - 100 * signs, at_least=10.0))
    return rows, bars


EXPERIMENTS: dict[str, experiments.Experiment] = {"fashion": fashion, "cifar10": cifar10}


def main() -> None:
    parser = experiments.parser("pcpp", __doc__, list(EXPERIMENTS))
    parser.set_defaults(threads=2)
    parser.add_argument("--epochs", type=int, help="of a run (fashion 10, cifar10 2)")
    parser.add_argument("--subset", type=int, help="examples (fashion 12,000, cifar10 all)")
    parser.add_argument("--seeds", type=int, default=5, help="of fashion")
    experiments.run("pcpp", parser.parse_args(), EXPERIMENTS)


if __name__ == "__main__":
    main()
