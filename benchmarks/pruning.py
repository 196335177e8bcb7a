"""Robust pruning, measured: what edge-popup's masks cost, and four claims of the paper in small.

    python -m benchmarks.pruning steps      # CPU time of a step against the same dense network,
                                            # clean and under PGD-10, masks cached and not
    python -m benchmarks.pruning claims     # fashion-mnist, a narrow network, epochs stated

Steps are measured in CPU time of one thread, so that a shared machine measures the same. Claims
read data from --data-dir or BITFRONT_DATA and measure on a validation split."""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import experiments
from benchmarks.table import Row, bar, csv_path, write_csv

PACKAGES = ("torch", "foolbox")
STEP_BAR = 1.3
ALLOCATION_BAR_MS = 10.0
LAYERS = 1000
# About a million weights.
MILLION = {"name": "rn-narrow", "width": 30, "stages": 4, "affine": False, "lbn": True}
NARROW = {"name": "rn-narrow", "width": 16, "affine": False}
EPS = 0.05


def spec_of(task: dict[str, Any], method: str, params: dict[str, Any], seed: int = 0) -> Any:
    from bitfront.trainables.cost import task_cost_table
    from bitfront.trainables.task import Task, TrialSpec

    built = Task.model_validate(task)
    letter = "F" if method == "fp" else "W"
    plan = letter * len(task_cost_table(built).plan_layers)
    return TrialSpec(task=built, method=method, params=params, plan=plan, seed=seed)


# --- steps --------------------------------------------------------------------------------------


def _step(method: str, train: str, cached: bool, batch: int) -> tuple[Callable[[], None], int]:
    """(one training step of the million-weight network, its weights), on random images."""
    import torch

    from bitfront.trainables.data import Arrays
    from bitfront.trainables.layers.sparse import Popped
    from bitfront.trainables.training.loop import Training

    task = {
        "dataset": "fashion-mnist",
        "model": MILLION,
        "batch_size": batch,
        "binarize": "all",
        "optimizer": {"name": "sgd", "lr": 0.1},
        "attack": {"eps": EPS, "train": train, "steps": 10},
    }
    generator = torch.Generator().manual_seed(0)
    images = Arrays(
        torch.randn(batch, 1, 28, 28, generator=generator),
        torch.randint(10, (batch,), generator=generator),
    )
    params = {"rate": 0.9} if method == "edge-popup" else {}
    training = Training(spec_of(task, method, params), images, images)
    for layer in training.network.binary:
        layer.quantizer.popped = Popped(cached)  # type: ignore[assignment]
    weights = sum(p.numel() for p in training.model.parameters())

    def step() -> None:
        training._train_epoch()

    return step, weights


def steps(args: argparse.Namespace) -> tuple[list[Row], list[str]]:
    from bitfront.trainables.attacks.atta import atta_bytes
    from bitfront.trainables.layers.pruning import counts

    rows: list[Row] = []
    times: dict[str, float] = {}
    for what, method, train, cached in (
        ("dense, clean", "fp", "none", True),
        ("edge-popup, clean", "edge-popup", "none", True),
        ("dense, PGD-10", "fp", "pgd", True),
        ("edge-popup, PGD-10, masks cached", "edge-popup", "pgd", True),
        ("edge-popup, PGD-10, masks made anew", "edge-popup", "pgd", False),
    ):
        step, weights = _step(method, train, cached, args.batch)
        step()
        measured = []
        for _ in range(args.repeats):
            started = time.process_time()
            step()
            measured.append(time.process_time() - started)
        times[what] = min(measured)
        dense = times["dense, clean" if train == "none" else "dense, PGD-10"]
        rows.append(
            {
                "step": what,
                "weights": weights,
                "batch": args.batch,
                "CPU ms": round(1000 * times[what], 1),
                "over dense": round(times[what] / dense, 3),
            }
        )
        print(f"{what}: {times[what]:.3f} s", flush=True)
    sizes = [1000 + 37 * i for i in range(LAYERS)]
    settled = min(_timed(lambda: counts(sizes, 0.99, 0.1)) for _ in range(20))
    rows.append({"step": f"counts of {LAYERS} layers", "CPU ms": round(1000 * settled, 3)})
    clean = times["edge-popup, clean"] / times["dense, clean"]
    kept = times["edge-popup, PGD-10, masks cached"] / times["dense, PGD-10"]
    anew = times["edge-popup, PGD-10, masks made anew"] / times["dense, PGD-10"]
    return rows, [
        bar("clean step over dense", clean, at_most=STEP_BAR),
        f"      under PGD-10 over dense: {kept:.3f} cached, {anew:.3f} made anew at every pass",
        bar(f"counts of {LAYERS} layers, ms", 1000 * settled, at_most=ALLOCATION_BAR_MS),
        f"      ATTA keeps {atta_bytes((3, 32, 32)):,} bytes of a CIFAR image, "
        f"{atta_bytes((3, 224, 224), 8):,} of one of ImageNet at 1/8, "
        f"{atta_bytes((1, 28, 28)):,} of one of fashion-mnist",
    ]


def _timed(action: Callable[[], Any]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


# --- claims -------------------------------------------------------------------------------------


def claims(args: argparse.Namespace) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    found: dict[str, dict[str, float]] = {}

    def measure(what: str, rate: float, p: float, lbn: bool, train: str, seeds: int) -> None:
        runs = [_run(args, rate, p, lbn, train, seed) for seed in range(seeds)]
        clean, robust, drop = (
            [100 * run[name] for run in runs] for name in ("accuracy", "robust", "drop")
        )
        found[what] = {"clean": statistics.fmean(clean), "robust": statistics.fmean(robust)}
        rows.append(
            {
                "run": what,
                "r": rate,
                "p": p,
                "LBN": "yes" if lbn else "no",
                "training": train,
                "epochs": args.epochs,
                "examples": int(0.8 * args.subset),
                "seeds": seeds,
                "accuracy, %": round(found[what]["clean"], 2),
                "std": round(statistics.stdev(clean), 2) if seeds > 1 else None,
                f"PGD-20 accuracy, %, eps {EPS}": round(found[what]["robust"], 2),
                "largest drop, points": round(max(drop), 2),
            }
        )
        print(rows[-1], flush=True)
        write_csv(rows, csv_path("pruning-claims", PACKAGES, args.out))

    for rate in (0.99, 0.5):
        for p in (0.1, 1.0):
            measure(f"r {rate:g}, p {p:g}", rate, p, True, "clean", args.seeds)
    measure("no LBN", 0.9, 0.5, False, "clean", args.seeds)
    measure("LBN", 0.9, 0.5, True, "clean", args.seeds)
    measure("under PGD", 0.9, 0.5, True, "pgd", args.robust_seeds)
    few = found["r 0.99, p 0.1"]["clean"] - found["r 0.99, p 1"]["clean"]
    many = found["r 0.5, p 1"]["clean"] - found["r 0.5, p 0.1"]["clean"]
    norm = found["LBN"]["clean"] - found["no LBN"]["clean"]
    robust = found["under PGD"]["robust"] - found["LBN"]["robust"]
    return rows, [
        bar("r 0.99: p 0.1 minus p 1, points", few, at_least=0.0),
        bar("r 0.5: p 1 minus p 0.1, points", many, at_least=0.0),
        bar("binary weights: LBN minus none, points", norm, at_least=0.0),
        bar("PGD-20 accuracy: trained under PGD minus clean, points", robust, at_least=15.0),
    ]


def _run(
    args: argparse.Namespace, rate: float, p: float, lbn: bool, train: str, seed: int
) -> dict[str, float]:
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.parts import search_data
    from bitfront.trainables.training.robustness import robust_accuracies

    task = {
        "dataset": "fashion-mnist",
        "model": {**NARROW, "lbn": lbn},
        "epochs": args.epochs,
        "batch_size": 64,
        "subset": args.subset,
        "data_dir": args.data_dir,
        "binarize": "all",
        "optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 5e-4},
        "attack": {
            "eps": EPS,
            "train": "none" if train == "clean" else train,
            "steps": 3,
            "norms": "eval",
            "examples": args.examples,
        },
    }
    spec = spec_of(task, "edge-popup", {"rate": rate, "p": p}, seed)
    training = Training(spec, *search_data(spec.task))
    while not training.done:
        training.epoch()
    training.network.verify()
    curve = [row["val_accuracy"] for row in training.history]
    robust = robust_accuracies(training.model, training.validation, spec.task, ["pgd20"])
    return {
        "accuracy": curve[-1],
        "robust": robust["val_robust_pgd20"],
        "drop": max([0.0, *(a - b for a, b in itertools.pairwise(curve))]),
    }


EXPERIMENTS: dict[str, experiments.Experiment] = {"steps": steps, "claims": claims}


def main() -> None:
    parser = experiments.parser("pruning", __doc__, list(EXPERIMENTS))
    parser.add_argument("--epochs", type=int, default=6, help="of a run of claims")
    parser.add_argument("--subset", type=int, default=3000, help="examples of claims")
    parser.add_argument("--seeds", type=int, default=2, help="of the clean runs of claims")
    parser.add_argument("--robust-seeds", type=int, default=1, help="of the run under PGD")
    parser.add_argument("--examples", type=int, default=300, help="that are attacked")
    parser.add_argument("--batch", type=int, default=64, help="images a step of steps")
    parser.add_argument("--repeats", type=int, default=3, help="of a step; the fastest counts")
    experiments.run("pruning", parser.parse_args(), EXPERIMENTS, PACKAGES)


if __name__ == "__main__":
    main()
