"""What a trial costs beside its training: bitfront against the stock combination (Ray Tune,
OptunaSearch and MLflowLoggerCallback as they come) and against a bare Optuna loop.

    python -m benchmarks.overhead            # 200 trials, 24 of the stock combination
    python -m benchmarks.overhead --flat     # 1,000 trials of bitfront: does it slow down?
    python -m benchmarks.overhead --quick    # the size for CI
    python -m benchmarks.overhead --profile  # where the driver's time goes (cProfile)

All train the same near-empty network of the same space with the same sampler. Each variant has a
process of its own, so that no setting of one reaches another. The clock runs from the first trial
asked for to the last trial ended: starting Ray is not in it, starting workers is.

    overhead s/trial = seconds/trials - training seconds a trial / trials at once

with the training seconds (building the network and one epoch) measured in the bare loop."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.table import Row, bar, csv_path, format_table, write_csv
from bitfront.search.ledger.states import TrialState

SEARCH = """\
name: overhead
task:
  dataset: digits
  model: {name: mlp, depth: 6, width: 4}
  epochs: 1
  subset: 40
  batch_size: 16
space:
  method: bnn
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.001, 0.1], log: true}
  loss.label_smoothing: {float: [0.0, 0.3]}
search: {sampler: tpe, seed: 0}
resources: {cpus: 1}
"""
# Worker start-up and the sampler's random phase are over by then.
FLAT_SKIP = 20
FLAT_WINDOW = 50
PACKAGES = ("ray", "optuna")


@dataclass(frozen=True)
class Timing:
    """When trials were asked for and ended (seconds since the epoch), sorted."""

    started: list[float]
    ended: list[float]
    at_once: int
    training: float | None = None

    @property
    def trials(self) -> int:
        return len(self.ended)

    @property
    def seconds(self) -> float:
        return self.ended[-1] - self.started[0]


def loaded(folder: Path, trials: int, at_once: int) -> Any:
    from bitfront.search.config.load import load

    path = folder / "overhead.yaml"
    path.write_text(SEARCH, encoding="utf-8")
    return load(path, [f"search.trials={trials}", f"resources.concurrent={at_once}"])


def start_ray(at_once: int) -> None:
    """A Ray of our own, whatever else runs on the machine."""
    import logging

    import ray

    ray.init(
        address="local",
        num_cpus=at_once,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=256 * 1024**2,
    )


def completed(place: Any, trials: int) -> list[Any]:
    """The trials of a search, all of which must have come to their end: one that failed took no
    time worth measuring."""
    from bitfront.search.ledger.reader import read_entries

    entries = read_entries(place.ledger_url, place.name)
    lost = [e for e in entries if e.state != TrialState.COMPLETE]
    if lost or len(entries) != trials:
        why = f": {lost[0].failure}: {lost[0].message}" if lost else ""
        raise RuntimeError(f"{len(entries)} of {trials} trials, {len(lost)} not complete{why}")
    return entries


def run_bitfront(folder: Path, trials: int, at_once: int, profile: bool = False) -> Timing:
    """The path of `bitfront run`: session, Ray Tune, ledger on disk, MLflow on SQLite."""
    import bitfront.search.cluster.tuner  # sets what Ray reads when it is imported  # noqa: F401
    from bitfront.search.session.preparation import prepare
    from bitfront.verbs.launch import launch

    config, space = loaded(folder, trials, at_once)
    start_ray(at_once)
    place = prepare(config, folder)
    if profile:
        _profiled(lambda: launch(config, space, place, None, quiet=True))
    else:
        launch(config, space, place, None, quiet=True)
    entries = completed(place, trials)
    return Timing(
        sorted(e.started for e in entries if e.started is not None),
        sorted(e.ended for e in entries if e.ended is not None),
        at_once,
    )


def _profiled(action: Callable[[], Any]) -> None:
    """The driver's main thread; MLflow is written by another one."""
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.runcall(action)
    for order in ("tottime", "cumtime"):
        pstats.Stats(profiler).strip_dirs().sort_stats(order).print_stats(25)


def run_stock(folder: Path, trials: int, at_once: int) -> Timing:
    """Tuner + OptunaSearch + MLflowLoggerCallback with their defaults, but for the tables Tune
    prints: a fresh actor a trial."""
    start_ray(at_once)
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    from bitfront.spaces.costs import costs_of

    config, space = loaded(folder, trials, at_once)
    clock = folder / "clock"

    class Stock(tune.Trainable):
        """The same tiny training."""

        def setup(self, config: dict[str, Any]) -> None:
            import torch

            from bitfront.trainables.training.loop import Training
            from bitfront.trainables.training.parts import search_data

            torch.set_num_threads(1)
            self.spec = space.walk(lambda name, domain: config[name])
            self.training = Training(self.spec, *search_data(self.spec.task))

        def step(self) -> dict[str, Any]:
            accuracy = self.training.epoch()["val_accuracy"]
            flops = costs_of(self.spec)["flops"]
            return {"val_accuracy": accuracy, "flops": flops, "done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Tune saves a trial that ends; near-empty trials have nothing to keep."""

    class Clocked(OptunaSearch):
        """Notes when trials are asked for and end; a file survives any copy Tune makes."""

        def suggest(self, trial_id: str) -> dict[str, Any] | None:
            _note(clock, "started")
            return super().suggest(trial_id)

        def on_trial_complete(self, trial_id: str, *args: Any, **kwargs: Any) -> None:
            super().on_trial_complete(trial_id, *args, **kwargs)
            _note(clock, "ended")

    searcher = Clocked(
        space=Define(space),
        metric=["val_accuracy", "flops"],
        mode=["max", "min"],
        sampler=sampler(config.search.seed),
    )
    tune.Tuner(
        tune.with_resources(Stock, {"cpu": 1}),
        tune_config=tune.TuneConfig(
            search_alg=searcher, num_samples=trials, max_concurrent_trials=at_once
        ),
        run_config=tune.RunConfig(
            name="stock",
            storage_path=str(folder / "ray"),
            verbose=0,
            callbacks=[
                MLflowLoggerCallback(
                    tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", experiment_name="stock"
                )
            ],
        ),
    ).fit()
    notes = [line.split() for line in clock.read_text().splitlines()]
    by_kind = {k: sorted(float(t) for w, t in notes if w == k) for k in ("started", "ended")}
    if len(by_kind["ended"]) != trials:
        raise RuntimeError(f"{len(by_kind['ended'])} of {trials} stock trials ended")
    return Timing(by_kind["started"], by_kind["ended"], at_once)


@dataclass(frozen=True)
class Define:
    """The space as OptunaSearch wants it; at module level, because Tune pickles it."""

    space: Any

    def __call__(self, trial: Any) -> None:
        self.space.walk(lambda name, domain: suggested(trial, name, domain))


def _note(clock: Path, what: str) -> None:
    with clock.open("a") as out:
        out.write(f"{what} {time.time()}\n")


def run_bare(folder: Path, trials: int, at_once: int) -> Timing:
    """ask, train, tell in one process; the study on SQLite as Optuna makes it."""
    import optuna
    import torch

    from bitfront.spaces.costs import costs_of
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.parts import search_data

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    torch.set_num_threads(1)
    config, space = loaded(folder, trials, 1)
    study = optuna.create_study(
        storage=f"sqlite:///{folder / 'bare.db'}",
        directions=["maximize", "minimize"],
        sampler=sampler(config.search.seed),
    )
    started, ended, training = [], [], []
    for _ in range(trials):
        started.append(time.time())
        trial = study.ask()
        # The same walk as elsewhere; `trial` is bound now, not when the loop has gone on.
        spec = space.walk(lambda name, domain, trial=trial: suggested(trial, name, domain))
        before = time.perf_counter()
        metrics = Training(spec, *search_data(spec.task)).epoch()
        training.append(time.perf_counter() - before)
        study.tell(trial, [metrics["val_accuracy"], costs_of(spec)["flops"]])
        ended.append(time.time())
    # The median leaves out the first trial, which reads the data.
    return Timing(started, ended, 1, statistics.median(training))


def sampler(seed: int) -> Any:
    """What bitfront's `tpe` is."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, constant_liar=True
        )


def suggested(trial: Any, name: str, domain: Any) -> Any:
    from bitfront.trainables.parameters import Choice, Int

    if isinstance(domain, Choice):
        return trial.suggest_categorical(name, domain.values)
    if isinstance(domain, Int):
        return trial.suggest_int(name, domain.low, domain.high, step=domain.step, log=domain.log)
    return trial.suggest_float(name, domain.low, domain.high, log=domain.log)


def alone(run: Callable[..., Timing], *args: Any) -> Timing:
    """Run one variant in a fresh process and a fresh folder."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        with pool:
            return pool.submit(run, Path(folder), *args).result()


def overhead_rows(timings: dict[str, Timing]) -> list[Row]:
    training = timings["bare"].training
    assert training is not None
    per_minute = {name: 60 * t.trials / t.seconds for name, t in timings.items()}
    rows: list[Row] = []
    for name, t in timings.items():
        rows.append(
            {
                "variant": name,
                "trials": t.trials,
                "at once": t.at_once,
                "seconds": round(t.seconds, 2),
                "trials/min": round(per_minute[name], 2),
                "s/trial": round(t.seconds / t.trials, 4),
                "s/trial after first end": round((t.ended[-1] - t.ended[0]) / (t.trials - 1), 4),
                "training s/trial": round(training, 4),
                "overhead s/trial": round(t.seconds / t.trials - training / t.at_once, 4),
                "ratio to stock": round(per_minute[name] / per_minute["stock"], 2),
            }
        )
    return rows


def flat_rows(timing: Timing) -> list[Row]:
    """Wall seconds of each window of trials, from the end before it to its last end; the first
    FLAT_SKIP + 1 trials are left out."""
    ends = timing.ended[FLAT_SKIP:]
    first = ends[FLAT_WINDOW] - ends[0]
    rows: list[Row] = []
    starts = [*range(0, len(ends) - 2 * FLAT_WINDOW, FLAT_WINDOW), len(ends) - 1 - FLAT_WINDOW]
    for start in starts:
        seconds = ends[start + FLAT_WINDOW] - ends[start]
        rows.append(
            {
                "from trial": FLAT_SKIP + start + 2,
                "to trial": FLAT_SKIP + start + 1 + FLAT_WINDOW,
                "seconds": round(seconds, 3),
                "relative to the first": round(seconds / first, 3),
            }
        )
    return rows


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--flat", action="store_true", help="only the flatness test")
    parser.add_argument("--profile", action="store_true", help="only profile bitfront's driver")
    parser.add_argument("--quick", action="store_true", help="fewer trials, for CI")
    parser.add_argument("--trials", type=int, help="of bitfront and of the bare loop")
    parser.add_argument("--stock-trials", type=int, help="of the stock combination")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="trials in parallel")
    parser.add_argument("--out", type=Path, help="folder of the CSV (benchmarks/results)")
    return parser.parse_args(argv)


def main() -> None:
    args = parse()
    size = "-quick" if args.quick else ""
    if args.profile:
        alone(run_bitfront, args.trials or (30 if args.quick else 200), args.at_once, True)
        return
    if args.flat:
        trials = args.trials or (150 if args.quick else 1000)
        if trials <= FLAT_SKIP + 2 * FLAT_WINDOW:
            raise SystemExit(f"--flat takes more than {FLAT_SKIP + 2 * FLAT_WINDOW} trials")
        rows = flat_rows(alone(run_bitfront, trials, args.at_once))
        print(format_table(rows))
        ratio = float(rows[-1]["relative to the first"] or 0)
        print(bar(f"last {FLAT_WINDOW} trials over first {FLAT_WINDOW}", ratio, at_most=1.5))
        write_csv(rows, csv_path(f"flat{size}", PACKAGES, args.out))
        return
    trials = args.trials or (20 if args.quick else 200)
    stock_trials = args.stock_trials or (4 if args.quick else 24)
    timings = {
        "bare": alone(run_bare, trials, 1),
        "stock": alone(run_stock, stock_trials, args.at_once),
        "bitfront": alone(run_bitfront, trials, args.at_once),
    }
    rows = overhead_rows(timings)
    print(format_table(rows))
    ours = rows[-1]
    print(bar("trials/min against stock", float(ours["ratio to stock"] or 0), at_least=10))
    print(bar("overhead s/trial", float(ours["overhead s/trial"] or 0), at_most=0.15))
    write_csv(rows, csv_path(f"overhead{size}", PACKAGES, args.out))


if __name__ == "__main__":
    main()
