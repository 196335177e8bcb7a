"""Ray Tune: trials of a session on reused actors, on one machine or a cluster. Ray holds no state
of a search that matters: resuming is a new Tuner over the same ledger (traps.md)."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

# Read by Ray when it is imported. Its own loggers, snapshots and progress tables cost time per
# trial and tell nothing the ledger does not know.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1000000000")
os.environ.setdefault("TUNE_WARN_THRESHOLD_S", "1000")
# A trial that failed reports its reason instead of a metric.
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from search.config import ResourceSpec, SearchConfig
from search.driver import Session
from search.schedulers import FrontScheduler
from search.study import LedgerLostError
from search.watcher import Watcher, ending_all_when_lost
from trainables.registry import UserError
from trainables.trial import Trial

OBJECT_STORE_BYTES = 256 * 1024**2


class LedgerSearcher(Searcher):
    """Hands Ray the trials the ledger asks for and brings their ends back."""

    def __init__(self, session: Session, concurrent: int) -> None:
        quality = session.config.quality
        super().__init__(metric=quality.name, mode="max" if quality.maximize else "min")
        self.session = session
        self.concurrent = concurrent
        self.trials: dict[str, str] = {}

    def suggest(self, trial_id: str) -> Any:
        if len(self.trials) >= self.concurrent:
            return None
        with ending_all_when_lost():
            entry = self.session.ask()
        if entry is None:
            return Searcher.FINISHED
        self.trials[trial_id] = entry.id
        return self.session.trial_config(entry)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.session.report(self.trials[trial_id], result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        # An error is told by `Watcher.on_trial_error`, which knows what happened.
        if not error and result is not None and trial_id in self.trials:
            with ending_all_when_lost():
                self.session.finish(self.trials.pop(trial_id), result)

    def __getstate__(self) -> dict[str, Any]:
        """The Tuner pickles itself for a restore that is never made from it."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing to keep: the ledger is on disk already."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to bring back."""


def make_scheduler(session: Session) -> TrialScheduler:
    return FIFOScheduler() if session.stopping is None else FrontScheduler(session)


def run_tasks(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    config: SearchConfig,
    address: str | None = None,
) -> list[Any]:
    """Call `function` where trials run, with what a trial may use."""
    resources = config.resources
    started = _connect(address, resources)
    try:
        _concurrent(resources)
        remote = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus)(function)
        with _quiet_ray():
            return ray.get([remote.remote(*call) for call in calls])
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, UserError):
            raise UserError(cause.message, cause.hint) from None
        raise
    finally:
        if started:
            ray.shutdown()


def run_trials(session: Session, address: str | None = None) -> None:
    """Run the session's trials to the end of its budget, or until an interrupt."""
    resources = session.config.resources
    started = _connect(address, resources)
    try:
        concurrent = _concurrent(resources)
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(concurrent)
        searcher = LedgerSearcher(session, concurrent)
        storage = session.folder.path / "ray"
        shutil.rmtree(storage, ignore_errors=True)
        tuner = tune.Tuner(
            tune.with_resources(Trial, {"cpu": resources.cpus, "gpu": resources.gpus}),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=make_scheduler(session),
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=lambda trial: trial.config["trial"],
                trial_dirname_creator=lambda trial: trial.config["trial"],
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=str(storage),
                verbose=0,
                callbacks=[Watcher(searcher, resources.report_within)],
                failure_config=tune.FailureConfig(max_failures=resources.retries),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        session.progress.start()
        # A million objects of torch, Ray and MLflow need not be looked at in every collection.
        gc.freeze()
        try:
            with _quiet_ray():
                tuner.fit()
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt.__cause__, LedgerLostError):
                raise interrupt.__cause__ from None
            raise
        finally:
            gc.unfreeze()
            session.progress.stop()
            shutil.rmtree(storage, ignore_errors=True)
    finally:
        if started:
            ray.shutdown()


def _connect(address: str | None, resources: ResourceSpec) -> bool:
    """Join the cluster at `address`, or start Ray here. True when Ray is ours to stop."""
    if ray.is_initialized():
        return False
    if address is not None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(
                f"no Ray cluster answers at '{address}': {str(error).splitlines()[0]}",
                "start one with: ray start --head; a cluster with tokens wants RAY_AUTH_MODE=token",
            ) from None
    else:
        ray.init(
            address="local",  # never somebody else's cluster that happens to run here
            num_cpus=os.cpu_count(),
            include_dashboard=False,
            _node_ip_address="127.0.0.1",  # everything Ray listens on is for this machine only
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
        )
    return True


def _concurrent(resources: ResourceSpec) -> int:
    """How many trials fit at once; an error where not even one does."""
    have = ray.cluster_resources()
    cpus, gpus = have.get("CPU", 0.0), have.get("GPU", 0.0)
    if resources.cpus > cpus or resources.gpus > gpus:
        raise UserError(
            f"a trial wants {resources.cpus:g} CPUs and {resources.gpus:g} GPUs, "
            f"Ray has {cpus:g} CPUs and {gpus:g} GPUs",
            "lower resources.cpus or resources.gpus, or use a larger cluster",
        )
    fits = int(cpus // resources.cpus)
    if resources.gpus > 0:
        fits = min(fits, int(gpus // resources.gpus))
    return max(1, min(fits, resources.concurrent or fits))


@contextlib.contextmanager
def _quiet_ray() -> Any:
    """Ray's own warnings about trials that errored are in the ledger, with reasons."""
    loggers = [logging.getLogger(name) for name in ("ray.tune", "ray.train", "ray")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        sys.stdout.flush()
