"""Train every plan of a small network and write the truth table.

    python -m testbed.truth.build digits            # about an hour of one core
    python -m testbed.truth.build fashion --data-dir DATA    # cifar and mnist likewise

Each plan is trained by the `Worker` of a search, with the spec that a search would make. An
interrupted build continues: finished trials are stored in `--work`."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bitfront.spaces.costs import costs_of
from bitfront.spaces.space import FreePlan, Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.own_code.places import look_in
from bitfront.trainables.task import TrialSpec
from testbed import truth


def every_plan(space: Space) -> list[str]:
    assert isinstance(space.plan, FreePlan)
    layers = len(task_cost_table(space.task).plan_layers)
    return ["".join(letters) for letters in itertools.product(space.plan.levels, repeat=layers)]


def train(spec: dict[str, Any]) -> list[float]:
    """Validation accuracy after every epoch of one trial."""
    from bitfront.trainables.worker.worker import Worker

    look_in(truth.FOLDER)
    with tempfile.TemporaryDirectory() as folder:
        # No checkpoints, since a trial takes only a few seconds.
        trial = Worker({"spec": spec, "folder": folder, "checkpoint_every": 10**9, "threads": 1})
        while not (result := trial.step())["done"]:
            pass
    if "failure" in result:
        raise RuntimeError(f"{spec['plan']}: {result['failure']}: {result['message']}")
    return [row["val_accuracy"] for row in result["history"]]


def _train_numbered(job: tuple[str, dict[str, Any]]) -> tuple[str, list[float]]:
    key, spec = job
    return key, train(spec)


def build(
    name: str, seeds: list[int], processes: int, data_dir: str | None, work: Path, limit: int | None
) -> truth.Truth:
    config, space = truth.search(name)
    if data_dir is not None:
        os.environ["BITFRONT_DATA"] = data_dir
    plans = every_plan(space)[:limit]
    work.mkdir(parents=True, exist_ok=True)
    done_file = work / f"{name}.jsonl"
    done = dict(map(json.loads, done_file.read_text().splitlines())) if done_file.exists() else {}
    method, params = truth.method_of(config)
    jobs = []
    for plan, seed in itertools.product(plans, seeds):
        spec = TrialSpec(task=config.task, method=method, params=params, plan=plan, seed=seed)
        if f"{plan}/{seed}" not in done:
            jobs.append((f"{plan}/{seed}", spec.canonical().model_dump(mode="json")))
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool, done_file.open("a") as out:
        for count, (key, curve) in enumerate(pool.imap_unordered(_train_numbered, jobs), 1):
            done[key] = curve
            out.write(json.dumps([key, curve]) + "\n")
            out.flush()
            if count % 50 == 0 or count == len(jobs):
                left = (time.monotonic() - started) / count * (len(jobs) - count)
                print(
                    f"{name}: {count} of {len(jobs)} trials, {left / 60:.0f} min left", flush=True
                )
    specs = [TrialSpec(task=config.task, method=method, params=params, plan=p) for p in plans]
    totals = [costs_of(spec) for spec in specs]
    return truth.Truth(
        config=config,
        plans=plans,
        seeds=seeds,
        accuracy=np.array([[done[f"{plan}/{seed}"] for seed in seeds] for plan in plans]),
        costs={cost: np.array([t[cost] for t in totals]) for cost in totals[0]},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a YAML of testbed/truth: digits, fashion, residual-mlp")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--data-dir", help="where the data lie")
    parser.add_argument("--limit", type=int, help="only the first plans, to try the script")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bitfront-truth")
    parser.add_argument("--out", type=Path, default=truth.FOLDER)
    args = parser.parse_args()
    seeds = list(range(args.seeds))
    table = build(args.name, seeds, args.processes, args.data_dir, args.work, args.limit)
    facts = {"torch": metadata.version("torch"), "bitfront": metadata.version("bitfront")}
    path = truth.write(args.name, table, facts, args.out)
    print(f"{path}: {len(table.plans)} plans, {len(seeds)} seeds, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
