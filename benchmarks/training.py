"""Images a second: bitfront's training loop, in full precision and with every method at every
level it takes, against the plain way (DataLoader, torchvision transforms, a textbook loop).

    python -m benchmarks.training             # 5 rounds of 6 steps each
    python -m benchmarks.training --quick     # the size for CI
    python -m benchmarks.training --profile   # and which operators cost more than in fp

cresnet20 (or --model), batches of 128, made-up images of CIFAR's shape. The variants take turns,
an epoch each a round, in a different order every round; ratios are taken within a round and their
median is reported, so that noise hits all alike."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.table import Row, bar, csv_path, format_table, write_csv

BATCH = 128
PLAIN = "plain"
# What the bars allow of the time full precision takes.
ALLOWED = {"W": 1.10, "B": 1.20, "A": 1.20}
ALLOWED_MEMORY = 1.3
PROFILED_AT_MOST = 3
PACKAGES = ("torch",)


def fake_images(n: int) -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, n)


def plain_epoch(name: str, images: Any, labels: Any) -> Callable[[], None]:
    """The loop of the tutorials; its loader works ahead within an epoch, not between rounds."""
    import torch
    from PIL import Image
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    from bitfront.trainables.data import DATASETS
    from bitfront.trainables.models import build_model

    info = DATASETS.get("cifar10")
    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(info.mean, info.std),
        ]
    )

    class Images(Dataset[Any]):
        """What torchvision.datasets.CIFAR10 does with an index."""

        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return transform(Image.fromarray(images[index])), int(labels[index])

    loader = DataLoader(
        Images(), BATCH, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True
    )
    model = build_model(name, {}, info.shape, info.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    def epoch() -> None:
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()

    return epoch


def bitfront_training(name: str, method: str, level: str, images: Any, labels: Any) -> Any:
    """A run that never ends, so that an epoch is training alone."""
    import torch

    from bitfront.trainables.cost import task_cost_table
    from bitfront.trainables.data import DATASETS, Arrays
    from bitfront.trainables.task import Task, TrialSpec
    from bitfront.trainables.training.loop import Training

    info = DATASETS.get("cifar10")
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (info.mean, info.std))
    x = torch.as_tensor(images).permute(0, 3, 1, 2).float().div(255).sub(mean).div(std)
    arrays = Arrays(x, torch.as_tensor(labels))
    task = Task.model_validate(
        {
            "dataset": "cifar10",
            "model": name,
            "epochs": 1_000_000,
            "batch_size": BATCH,
            "optimizer": {"name": "sgd", "lr": 1e-3},
        }
    )
    plan = level * len(task_cost_table(task).plan_layers)
    spec = TrialSpec(task=task, method=method, plan=plan)
    return Training(spec, arrays, arrays, validate_each_epoch=False)


def peak_megabytes(training: Any) -> float:
    """The most memory one training step holds at a time, beyond what it begins with."""
    from torch.profiler import ProfilerActivity, profile

    training.epoch()  # the optimizer's state is there before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        training.epoch()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return highest / 1e6


def variants(only: list[str] | None) -> list[tuple[str, str]]:
    """Full precision, then every method (or those named) at every binary level it takes."""
    from bitfront.trainables.methods import METHODS

    names = METHODS.names() if only is None else only
    binary = [(m, level) for m in names for level in METHODS.get(m).levels if level != "F"]
    return [("fp", "F"), *binary]


def operators(epoch: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds an epoch spends in each operator itself."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        epoch()
    return {e.key: e.self_cpu_time_total / 1000 for e in profiled.key_averages()}


def print_profile(name: str, epoch: Callable[[], Any], fp: dict[str, float]) -> None:
    mine = operators(epoch)
    total, base = sum(mine.values()), sum(fp.values())
    more = {key: mine.get(key, 0.0) - fp.get(key, 0.0) for key in {*mine, *fp}}
    rows: list[Row] = [
        {
            "operator": key,
            "ms": round(mine.get(key, 0.0), 2),
            "ms in fp": round(fp.get(key, 0.0), 2),
            "more, % of fp": round(100 * more[key] / base, 2),
        }
        for key in sorted(more, key=lambda key: -abs(more[key]))[:12]
    ]
    print(f"\n{name}: {total:.0f} ms in operators, fp {base:.0f} ms")
    print(format_table(rows))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="cresnet20", help="one of bitfront models (cresnet20)")
    parser.add_argument("--methods", nargs="*", help="only these, beside fp (all)")
    parser.add_argument("--rounds", type=int, help="turns each variant gets (5)")
    parser.add_argument("--steps", type=int, help="batches a turn (6)")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument(
        "--cpu-clock",
        action="store_true",
        help="count CPU seconds, for a machine that others use too; leaves the plain way out, "
        "whose loader runs in processes of its own",
    )
    parser.add_argument("--quick", action="store_true", help="3 rounds of 2 steps, for CI")
    parser.add_argument(
        "--profile", action="store_true", help="profile what misses its bar, the worst first"
    )
    parser.add_argument("--out", type=Path, help="folder of the CSV (benchmarks/results)")
    return parser.parse_args(argv)


def main() -> None:
    args = parse()
    import torch

    torch.set_num_threads(args.threads)
    rounds = args.rounds or (3 if args.quick else 5)
    steps = args.steps or (2 if args.quick else 6)
    images, labels = fake_images(steps * BATCH)
    clock = time.process_time if args.cpu_clock else time.perf_counter
    epochs: dict[str, Callable[[], Any]] = {}
    if not args.cpu_clock:
        epochs[PLAIN] = plain_epoch(args.model, images, labels)
    peak: dict[str, float] = {}
    levels: dict[str, str] = {}
    for method, level in variants(args.methods):
        name = "fp" if level == "F" else f"{method} {level}"
        training = bitfront_training(args.model, method, level, images, labels)
        epochs[name], levels[name] = training.epoch, level
        peak[name] = peak_megabytes(training)
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    names = list(epochs)
    for turn in range(rounds + 1):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            before = clock()
            epochs[name]()
            # The first round only warms up.
            if turn:
                seconds[name].append(clock() - before)
    relative = {
        name: statistics.median(t / fp for t, fp in zip(times, seconds["fp"], strict=True))
        for name, times in seconds.items()
    }
    rows: list[Row] = [
        {
            "variant": name,
            "images/s": round(steps * BATCH / statistics.median(times), 1),
            "time relative to fp": round(relative[name], 3),
            "lowest": round(min(t / f for t, f in zip(times, seconds["fp"], strict=True)), 3),
            "highest": round(max(t / f for t, f in zip(times, seconds["fp"], strict=True)), 3),
            "peak of a step, MB": round(peak[name], 1) if name in peak else None,
        }
        for name, times in seconds.items()
    ]
    counted = "CPU seconds" if args.cpu_clock else "seconds"
    print(f"{rounds} rounds of {steps} steps, {args.threads} threads, {counted}")
    print(format_table(rows))
    if PLAIN in relative:
        print(bar("the plain way's time over fp's", relative[PLAIN], at_least=1.0))
    binary = [name for name in names if levels.get(name, "F") != "F"]
    for name in binary:
        print(bar(f"{name} over fp", relative[name], at_most=ALLOWED[levels[name]]))
    for name in binary:
        share = peak[name] / peak["fp"]
        print(bar(f"{name} peak memory over fp", share, at_most=ALLOWED_MEMORY))
    size = "-cpu-clock" if args.cpu_clock else ""
    size += "-quick" if args.quick else ""
    if args.model != "cresnet20":
        size = f"-{args.model.replace('/', '-')}{size}"
    write_csv(rows, csv_path(f"training{size}", PACKAGES, args.out))
    if args.profile:
        missed = [name for name in binary if relative[name] > ALLOWED[levels[name]]]
        worst = sorted(missed, key=lambda name: -relative[name])[:PROFILED_AT_MOST]
        fp = operators(epochs["fp"]) if worst else {}
        for name in worst:
            print_profile(name, epochs[name], fp)


if __name__ == "__main__":
    main()
