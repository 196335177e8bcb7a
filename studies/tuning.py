"""The stock combination on the space of a search: Ray Tune, OptunaSearch and MLflowLoggerCallback
with their defaults.

    python -m studies.tuning SEARCH.yaml FOLDER --trials 90 [--set KEY=VALUE]
    python -m studies.tuning SEARCH.yaml FOLDER --seconds 600

It trains what bitfront's trials train. Every trial that ended is a line of FOLDER/trials.jsonl. The
same command continues it: a new tuner over the same Optuna study, which is the way that keeps the
number of trials (docs/design.md 7.1)."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import torch
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.search.optuna import OptunaSearch

from benchmarks.overhead import Define, start_ray
from bitfront.search.config.load import load
from bitfront.spaces.costs import costs_of
from bitfront.spaces.space import Space
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data
from studies.steps import cores
from studies.stock import ROWS, read

TOLD = ("flops_pct", "method", "plan", "train_seconds", "cpu_seconds")


class Stock(tune.Trainable):
    """The training of a trial, an epoch a step."""

    def setup(self, config: dict[str, Any], **given: Any) -> None:
        space: Space = given["space"]
        torch.set_num_threads(1)
        self.seconds = self.cpu_seconds = 0.0
        self.spec = space.walk(lambda name, _domain: config[name])
        self.costs = costs_of(self.spec)
        self.training = Training(self.spec, *search_data(self.spec.task))

    def step(self) -> dict[str, Any]:
        wall, cpu = time.perf_counter(), time.process_time()
        measured = self.training.epoch()
        self.seconds += time.perf_counter() - wall
        self.cpu_seconds += time.process_time() - cpu
        return {
            **measured,
            **self.costs,
            "method": self.spec.method,
            "plan": self.spec.plan,
            "train_seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "done": self.iteration + 1 == self.spec.task.epochs,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Tune saves a trial that ends; nothing here continues it."""


@dataclass
class Noted(tune.Callback):
    """Writes down what was trained to its end."""

    rows: Path
    wanted: list[str]
    epochs: int

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        told = trial.last_result
        if told.get("training_iteration") != self.epochs:
            return
        row = {name: told[name] for name in (*self.wanted, *TOLD)}
        row |= {"epochs": self.epochs, "ended": time.time()}
        with self.rows.open("a", encoding="utf-8") as out:
            out.write(f"{json.dumps(row)}\n")


def tuned(
    file: Path, folder: Path, changes: Sequence[str], trials: int, seconds: float | None
) -> None:
    """Train so many trials, those of earlier turns among them, or as many as end in time."""
    at_once = cores()
    config, space = load(file, list(changes))
    objectives = config.front_objectives
    wanted = [o.name for o in objectives]
    before = len(read(folder))
    searcher = OptunaSearch(
        space=Define(space),
        metric=wanted,
        mode=["max" if o.maximize else "min" for o in objectives],
        seed=config.search.seed + before,  # or a turn repeats the draws of the one before
        study_name="stock",
        storage=optuna.storages.RDBStorage(f"sqlite:///{folder / 'optuna.db'}"),
    )
    mlflow = MLflowLoggerCallback(
        tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", experiment_name="stock"
    )
    start_ray(at_once)
    tune.Tuner(
        tune.with_resources(tune.with_parameters(Stock, space=space), {"cpu": 1}),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1 if seconds else trials - before,
            time_budget_s=seconds,
            max_concurrent_trials=at_once,
        ),
        run_config=tune.RunConfig(
            name=f"stock-{before}",
            storage_path=str(folder / "ray"),
            verbose=0,
            callbacks=[Noted(folder / ROWS, wanted, config.task.epochs), mlflow],
        ),
    ).fit()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m studies.tuning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("search", type=Path)
    parser.add_argument("folder", type=Path)
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--trials", type=int, default=0)
    limit.add_argument("--seconds", type=float)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    tuned(args.search, args.folder, args.set, args.trials, args.seconds)


if __name__ == "__main__":
    main()
