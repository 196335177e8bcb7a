"""Ray Tune: trials of a session on reused actors, on one machine or a cluster. Ray holds no state
of a search that matters: resuming is a new Tuner over the same ledger (traps.md)."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from unittest import mock

# Read by Ray when it is imported. Its own loggers, snapshots and progress tables cost time per
# trial and tell nothing the ledger does not know.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1000000000")
os.environ.setdefault("TUNE_WARN_THRESHOLD_S", "1000")
# How many trials wait is for the searcher to say.
os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", "10000")
# A trial that failed reports its reason instead of a metric.
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from pyarrow.fs import LocalFileSystem
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from bitfront.search.cluster import resources as cluster
from bitfront.search.cluster.scheduler import FrontScheduler
from bitfront.search.cluster.watcher import Watcher, ending_all_when_lost
from bitfront.search.config.schema import ResourceSpec, SearchConfig
from bitfront.search.ledger.ledger import LedgerLostError
from bitfront.search.session.interrupts import handlers_restored, obey
from bitfront.search.session.session import Session
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import discard
from bitfront.trainables.worker.worker import Trial

# Nodes come and go: how often the cluster is looked at again.
LOOK_SECONDS = 5.0
# Nodes without a worker to spare start one, which takes seconds.
TIDY_SECONDS = 30.0


class Room:
    """Whether another trial is worth asking for. One that is asked for too early waits, and is
    chosen without what others would have taught."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._seen, self._until = cluster.look(), 0.0

    def free(self, running: Iterable[float]) -> bool:
        """`running` are the GPUs of the trials that run: one that has a whole GPU while others
        share theirs takes the room of several."""
        taken = list(running)
        resources, gpus = self.session.config.resources, self.session.gpus
        if resources.concurrent is not None and len(taken) >= resources.concurrent:
            return False
        places = sum(max(1, round(g / gpus)) if gpus else 1 for g in taken)
        return places < self._cluster().room(cluster.needs(resources, gpus))

    def _cluster(self) -> cluster.Cluster:
        if time.monotonic() >= self._until:
            self._seen, self._until = cluster.look(), time.monotonic() + LOOK_SECONDS
        return self._seen


class LedgerSearcher(Searcher):
    """Hands Ray the trials the ledger asks for and brings their ends back."""

    def __init__(self, session: Session, room: Room) -> None:
        quality = session.config.quality
        super().__init__(metric=quality.name, mode="max" if quality.maximize else "min")
        self.session = session
        self.room = room
        self.trials: dict[str, str] = {}
        self._gpus: dict[str, float] = {}
        self._dry_at: int | None = None

    def suggest(self, trial_id: str) -> Any:
        if not self.room.free(self._gpus[t] for t in self.trials):
            return None
        obey()
        entry = None
        ended = self.session.ended
        if ended != self._dry_at or self.session.ledger.interrupted():
            with ending_all_when_lost():
                entry = self.session.ask()
        if entry is None:
            # A trial that runs may come back, or be worth another seed when it has ended: it is
            # asked again then, and not over before all have ended.
            self._dry_at = ended
            return None if self.trials else Searcher.FINISHED
        self.trials[trial_id] = entry.id
        self._gpus[trial_id] = self.session.gpus
        return self.session.trial_config(entry)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        with ending_all_when_lost():
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
    called: Callable[[], None] | None = None,
) -> list[Any]:
    """Call `function` where trials run, with what a trial may use; `called` is, once it does."""
    resources = config.resources
    started = cluster.connect(address)
    try:
        there = cluster.look()
        gpus = resources.whole_gpus if resources.gpus != "auto" or cluster.offers_gpus() else 0.0
        need = cluster.needs(resources, gpus)
        there.check(need)
        own = {name: n for name, n in need.items() if name not in ("CPU", "GPU")}
        remote = ray.remote(num_cpus=resources.cpus, num_gpus=gpus, resources=own)(function)
        with _quiet_ray():
            asked = [remote.remote(*call) for call in calls]
            if called is not None:
                called()
            return ray.get(asked)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, UserError):
            raise UserError(cause.message, cause.hint) from None
        raise
    finally:
        if started:
            cluster.leave()


def run_trials(session: Session, address: str | None = None) -> None:
    """Run the session's trials to the end of its budget, or until an interrupt."""
    resources = session.config.resources
    started = cluster.connect(address)
    try:
        session.progress.wait("looking at what Ray has for trials")
        _settle(session)
        searcher = LedgerSearcher(session, Room(session))
        storage = session.folder.path / "ray"
        discard(storage)
        tuner = tune.Tuner(
            tune.with_resources(
                tune.with_parameters(Trial, lent=_lent(session.config)),
                partial(_request, resources),
            ),
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
                # Else Ray takes a path with a '?' or a '%' for an address.
                storage_filesystem=LocalFileSystem(),
                verbose=0,
                callbacks=[Watcher(searcher, resources.report_within)],
                # A trial whose worker died is asked for again by the session, which counts.
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        session.progress.start()
        # A million objects of torch, Ray and MLflow need not be looked at in every collection.
        gc.freeze()
        try:
            with handlers_restored(), _quiet_ray():
                tuner.fit()
                with contextlib.suppress(Exception):  # nothing there is worth a finished search
                    _tidy_other_nodes(session)
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt.__cause__, LedgerLostError):
                raise interrupt.__cause__ from None
            raise
        finally:
            gc.unfreeze()
            session.progress.stop()
            discard(storage)
    finally:
        if started:
            session.progress.wait("ending Ray")
            cluster.leave()


def _tidy_other_nodes(session: Session) -> None:
    """Delete checkpoints of ended trials where nodes have disks of their own: those whose worker
    was killed, and the last one of every other worker. A node that does not answer keeps them."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    nodes = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] != here]
    if not nodes or session.running or session.config.storage is not None:
        return
    forget: Any = ray.remote(num_cpus=0, max_retries=0)(discard)
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    folder = session.folder.path / "trials"
    asked = [forget.options(scheduling_strategy=place).remote(folder) for place in places]
    ray.wait(asked, num_returns=len(asked), timeout=TIDY_SECONDS)


def _settle(session: Session) -> None:
    """What a trial takes of the cluster, which must have it, before the first one is asked for; and
    where its checkpoints are kept, which must take them."""
    session.try_storage()
    there = cluster.look()
    if session.config.resources.gpus == "auto":
        session.settle_gpus(cluster.offers_gpus())
    need = cluster.needs(session.config.resources, session.gpus)
    if there.check(need) is not None:
        # A cluster that has just been started has not told yet whether it grows.
        time.sleep(LOOK_SECONDS + 1)
        warning = cluster.look().check(need)
        if warning is not None:
            session.progress.say(warning)


def _lent(config: SearchConfig) -> dict[str, list[Any]]:
    """The training examples in Ray's object store, which brings them to every node once, in memory
    all its workers share. What is streamed, or larger than half a node's store, workers read
    themselves. The reference is in a list: Ray would fetch a bare one."""
    from bitfront.trainables.data import stored_arrays

    arrays = stored_arrays(config.task.dataset, config.task.data_dir)
    store = min(node.get("object_store_memory", 0.0) for node in cluster.look().nodes)
    if arrays is None or sum(array.nbytes for array in arrays) > store / 2:
        return {}
    return {config.task.dataset: [ray.put(arrays)]}


def _request(resources: ResourceSpec, config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """What Ray must have free for a trial."""
    return tune.PlacementGroupFactory([cluster.needs(resources, config["gpus"])])


@contextlib.contextmanager
def _quiet_ray() -> Any:
    """Ray's own warnings about trials that errored are in the ledger, with reasons. Its count of
    callbacks goes nowhere, and imports MLflow and all its other loggers before the first trial."""
    from ray.air._internal import usage

    loggers = [logging.getLogger(name) for name in ("ray.tune", "ray.train", "ray")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with mock.patch.object(usage, "tag_callbacks"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        sys.stdout.flush()
