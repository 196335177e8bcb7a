"""What a search costs its driver when it is long and wide.

    python -m benchmarks.scale                          # 1,000 to 10,000 trials, 2 to 128 slots
    python -m benchmarks.scale --trials 1000 --slots 8  # one size
    python -m benchmarks.scale --ray                    # 1,000 trials on Ray's own actors, 2 slots
    python -m benchmarks.scale --ray --slots 40 --trials 400 --epochs 5
    python -m benchmarks.scale --efficiency             # trials of 10 s on two cores
    python -m benchmarks.scale --profile                # where the driver's time goes

Slots may be more than the machine has cores because nothing is trained: the session of a real
driver (ledger on SQLite, front, MLflow on SQLite in its thread, sampler) is asked for trials and
told their results by a loop that keeps `slots` of them open. Ray Tune's own share comes on top and
is measured by `--ray`, with actors that do not import torch and end a trial at once. Costs are CPU
seconds of the driver's process, all its threads: a busy machine does not change them."""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import Row, bar, csv_path, format_table, write_csv

SEARCH = """\
name: scale
task:
  dataset: digits
  model: {name: mlp, depth: 12, width: 16}
  epochs: 3
space:
  method: [bnn, bc]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.001, 0.1], log: true}
search: {seed: 0}
resources: {cpus: 1}
"""
PACKAGES = ("ray", "optuna", "mlflow")
SLOTS = (2, 8, 32, 128)
TRIALS = (1000, 5000, 10000)
WINDOW = 200


def result_of(entry: Any) -> dict[str, Any]:
    """What a trial would report: better when dearer, with noise of its own."""
    noise = int(entry.id, 16) % 1000 / 1e5
    accuracy = 0.5 + 0.4 * (entry.costs["flops_pct"] / 100) ** 0.5 + noise
    history = [
        {"epoch": n, "train_loss": 1 / n, "val_accuracy": accuracy * n / 3, "val_loss": 0.5}
        for n in (1, 2, 3)
    ]
    return {**history[-1], "history": history, "done": True}


def drive(
    folder: Path, sizes: Sequence[int], slots: int, sampler: str, tracked: bool = True
) -> list[Row]:
    """One search to its end, in this process; a row when it has had so many trials."""
    from bitfront.search.config.load import load_text
    from bitfront.search.ledger.folder import SearchFolder
    from bitfront.search.session.session import Session
    from bitfront.search.tracking.tracker import Tracker

    settings = [f"search.trials={max(sizes)}", f"search.sampler={sampler}"]
    settings += [] if tracked else ["tracking.enabled=false"]
    config, space = load_text(SEARCH, "scale.yaml", settings)
    place = SearchFolder(folder / "runs" / "scale")
    place.path.mkdir(parents=True)
    place.config_file.write_text(config.dump())
    tracker = Tracker(config, place.identity, place.path.parent) if tracked else None
    session = Session(config, space, place, tracker)
    if tracker is not None:
        tracker.start([])
    rows: list[Row] = []
    began, cpu, asks = time.perf_counter(), [time.process_time()], []
    ended_at: list[float] = []
    running: deque[Any] = deque()
    while True:
        asked = time.perf_counter()
        entry = session.ask() if len(running) < slots else None
        if entry is not None:
            asks.append(time.perf_counter() - asked)
            running.append(entry)
            continue
        if not running:
            break
        ending = running.popleft()
        result = result_of(ending)
        for row in result["history"]:
            session.report(ending.id, row)
        session.finish(ending.id, result)
        cpu.append(time.process_time())
        ended_at.append(time.perf_counter() - began)
        if len(ended_at) in sizes:
            sofar = len(ended_at)
            rows.append(
                {
                    "sampler": sampler,
                    "slots": slots,
                    "trials": sofar,
                    "MLflow": "yes" if tracker else "no",
                    "driver CPU ms/trial": 1000 * (cpu[-1] - cpu[0]) / sofar,
                    f"last {WINDOW}": 1000 * (cpu[-1] - cpu[-1 - WINDOW]) / WINDOW,
                    "ask ms": 1000 * statistics.fmean(asks),
                    f"ask ms, last {WINDOW}": 1000 * statistics.fmean(asks[-WINDOW:]),
                    "driver MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                    "first trial s": ended_at[0],
                    "last trial s": ended_at[-1],
                    "MLflow backlog": tracker.behind if tracker else None,
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    session.close()
    if tracker is not None:
        closing = time.perf_counter()
        tracker.close("complete", {}, "")
        rows[-1]["backlog s"] = time.perf_counter() - closing
    return rows


def commands(folder: Path) -> Row:
    """CPU seconds of the commands on the finished search; `resume` finds nothing to do."""
    env = {**os.environ, "BITFRONT_HOME": str(folder / "runs")}
    row: Row = {}
    for verb in ("status", "front", "resume"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        command = [sys.executable, "-m", "bitfront.cli", verb, "scale"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{verb}: {done.stdout}{done.stderr}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        row[f"{verb} s"] = time.perf_counter() - began
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        row[f"{verb} CPU s"] = used
    return row


def measure(sizes: Sequence[int], slots: int, sampler: str, tracked: bool) -> list[Row]:
    """In a process of its own, so that memory and imports are this search's."""
    with tempfile.TemporaryDirectory(prefix="scale") as folder:
        words = ["--one", folder, "--trials", *map(str, sizes), "--slots", str(slots)]
        words += ["--sampler", sampler, *([] if tracked else ["--no-tracking"])]
        command = [sys.executable, "-m", "benchmarks.scale", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows: list[Row] = json.loads(done.stdout.splitlines()[-1])
        rows[-1] |= commands(Path(folder))
        return rows


def run_on_ray(folder: Path, trials: int, slots: int, steps: int = 1) -> Row:
    """The whole path with Ray Tune: actors of a trainable that ends at once, or after five epochs.
    What the driver's process takes besides the session's calls is Ray's."""
    from benchmarks.overhead import completed, start_ray
    from bitfront.search.cluster import tuner
    from bitfront.search.config.load import load_text
    from bitfront.search.session.preparation import prepare
    from bitfront.search.session.session import Session
    from bitfront.verbs.launch import launch
    from testbed.near_empty import STEPS, NearEmpty, Stepped

    settings = [f"search.trials={trials}", "search.sampler=random", "tracking.enabled=false"]
    config, space = load_text(SEARCH, "scale.yaml", [*settings, f"resources.concurrent={slots}"])
    start_ray(slots)
    tuner.Worker = NearEmpty if steps == 1 else Stepped  # type: ignore[attr-defined, assignment]
    place = prepare(config, folder)
    spent, ended = _timed(Session, "ask", "report", "finish"), []
    finish = Session.finish

    def noted(self: Session, trial_id: str, result: dict[str, Any]) -> None:
        finish(self, trial_id, result)
        ended.append((time.process_time(), time.perf_counter(), sum(spent.values())))

    Session.finish = noted  # type: ignore[method-assign]
    launch(config, space, place, None, quiet=True)
    completed(place, trials)
    # Workers start once, whatever the number of trials: from the end of the first ones on.
    (cpu, wall, own), (last_cpu, last_wall, last_own) = ended[slots], ended[-1]
    counted = len(ended) - 1 - slots
    return {
        "trials": trials,
        "slots": slots,
        "epochs": 1 if steps == 1 else STEPS,
        "driver CPU ms/trial": 1000 * (last_cpu - cpu) / counted,
        "session ms/trial": 1000 * (last_own - own) / counted,
        "Ray ms/trial": 1000 * (last_cpu - cpu - last_own + own) / counted,
        "trials a s": counted / (last_wall - wall),
        "driver MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _timed(kind: Any, *names: str) -> dict[str, float]:
    """CPU seconds of the calling thread in these methods of a class, from now on."""
    spent = dict.fromkeys(names, 0.0)

    def wrapped(name: str, inner: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return inner(*args, **kwargs)
            finally:
                spent[name] += time.thread_time() - began

        return call

    for name in names:
        setattr(kind, name, wrapped(name, getattr(kind, name)))
    return spent


def efficiency(folder: Path, trials: int, slots: int) -> Row:
    """Share of the slots' time in which they trained: trials that need so many seconds of a core,
    on a machine that does nothing else. What the driver and Ray's own processes take from the cores
    makes the training itself longer; the second share counts only what it would have needed."""
    from benchmarks.overhead import completed, start_ray
    from bitfront.search.cluster import tuner
    from bitfront.search.config.load import load_text
    from bitfront.search.session.preparation import prepare
    from bitfront.verbs.launch import launch
    from testbed.near_empty import SECONDS, Busy

    settings = [f"search.trials={trials}", f"resources.concurrent={slots}"]
    config, space = load_text(SEARCH, "scale.yaml", settings)
    start_ray(slots)
    tuner.Worker = Busy  # type: ignore[attr-defined, assignment]
    place = prepare(config, folder)
    launch(config, space, place, None, quiet=True)
    entries = completed(place, trials)
    started = sorted(e.started for e in entries)
    # Workers start once, whatever the number of trials: from the first trials' end on.
    entries.sort(key=lambda e: e.ended)
    wall = slots * (entries[-1].ended - entries[slots - 1].ended)
    trained = sum(e.metrics["seconds"] for e in entries[slots:])
    return {
        "trials": trials,
        "slots": slots,
        "training %": 100 * trained / wall,
        "of the cores %": 100 * (trials - slots) * SECONDS / wall,
        "with the start of the workers %": 100
        * trials
        * SECONDS
        / (slots * (entries[-1].ended - started[0])),
    }


def bars(rows: Sequence[Row]) -> list[str]:
    """What the issue asks for, of the sizes that were measured."""
    told = []
    by_size = {(r["trials"], r["slots"], r["sampler"], r["MLflow"]): r for r in rows}
    for (trials, slots, sampler, tracked), row in by_size.items():
        small = by_size.get((1000, slots, sampler, tracked))
        if small is not None and trials == max(TRIALS):
            growth = float(row["driver CPU ms/trial"]) / float(small["driver CPU ms/trial"])  # type: ignore[arg-type]
            told.append(bar(f"CPU a trial, {slots} slots, {sampler}", growth, at_most=1.5))
    largest = max(float(r["driver MB"] or 0) for r in rows)
    told.append(bar("memory of the driver, MB", largest, at_most=2048))
    for verb in ("status", "front"):
        longest = max(float(r.get(f"{verb} CPU s") or 0) for r in rows)
        told.append(bar(f"{verb}, CPU s", longest, at_most=2))
    return told


def _before(path: Path, rows: Sequence[Row]) -> list[Row]:
    """What the CSV has of other sizes; long ones need not be measured in one sitting."""
    if not path.exists():
        return []
    keys = ("sampler", "slots", "trials", "MLflow", "epochs")
    new = {tuple(str(row.get(k)) for k in keys) for row in rows}
    with path.open(newline="", encoding="utf-8") as old:
        return [r for r in csv.DictReader(old) if tuple(str(r.get(k)) for k in keys) not in new]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="*")
    parser.add_argument("--slots", type=int, nargs="*")
    parser.add_argument("--sampler", nargs="*", default=["random", "free-cost"])
    parser.add_argument("--no-tracking", action="store_true", help="without MLflow")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--epochs", type=int, choices=[1, 5], default=1, help="of --ray")
    parser.add_argument("--efficiency", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", metavar="DIR", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    small = args.ray or args.efficiency
    args.slots = args.slots or ([2] if small else list(SLOTS))
    args.trials = args.trials or ([40] if args.efficiency else [1000] if small else list(TRIALS))
    if args.one:
        size = (args.trials, args.slots[0], args.sampler[0])
        print(json.dumps(drive(Path(args.one), *size, tracked=not args.no_tracking)))
        return
    if args.profile:
        from benchmarks.overhead import _profiled

        with tempfile.TemporaryDirectory(prefix="scale") as folder:
            _profiled(lambda: drive(Path(folder), args.trials, args.slots[0], args.sampler[0]))
        return
    if small:
        what = "scale-efficiency" if args.efficiency else "scale-ray"
        with tempfile.TemporaryDirectory(prefix="scale") as folder:
            size = (Path(folder), args.trials[0], args.slots[0])
            row = efficiency(*size) if args.efficiency else run_on_ray(*size, args.epochs)
        rows = [row]
        if args.efficiency:
            print(bar("training, % of the slots' time", float(row["training %"]), at_least=95))  # type: ignore[arg-type]
    else:
        what, rows = "scale", []
        for sampler in args.sampler:
            for slots in args.slots:
                rows += measure(args.trials, slots, sampler, not args.no_tracking)
                print(rows[-1], flush=True)
        print("\n".join(bars(rows)))
    print(format_table(rows))
    write_csv([*_before(csv_path(what, PACKAGES), rows), *rows], csv_path(what, PACKAGES))


if __name__ == "__main__":
    main()
