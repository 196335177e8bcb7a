"""Ray Tune: the trials of a session on reused actors, on one machine or a cluster. Ray keeps no
state of a search that matters: resuming is a new Tuner over the same ledger. What Tune asks and
reports is in searcher.py, scheduler.py and watcher.py."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from pyarrow.fs import LocalFileSystem
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from bitfront.search import submission
from bitfront.search.cluster import connection
from bitfront.search.cluster.resources import needs
from bitfront.search.cluster.scheduler import FrontScheduler
from bitfront.search.cluster.searcher import (
    LOOK_SECONDS,
    LedgerSearcher,
    Room,
    waits_for_place,
)
from bitfront.search.cluster.watcher import Watcher, deaths_by_memory
from bitfront.search.config.schema import ResourceSpec, SearchConfig
from bitfront.search.ledger.writing import LedgerLostError
from bitfront.search.session.interrupts import handlers_restored
from bitfront.search.session.session import Session
from bitfront.trainables.data import PartName, stored_arrays
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import discard
from bitfront.trainables.own_code import Bundle, bundle, references_in, unpack
from bitfront.trainables.worker.request import Request
from bitfront.trainables.worker.worker import Worker

# How long deleting on other nodes may take: a node without an idle worker starts one.
TIDY_SECONDS = 30.0


def make_scheduler(session: Session) -> TrialScheduler:
    """The scheduler for the session's early-stopping rule or for its pauses, or one that lets every
    trial run to its end."""
    whole = session.stopping is None and session.pausing is None
    return FIFOScheduler() if whole else FrontScheduler(session)


def run_tasks(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    config: SearchConfig,
    address: str | None = None,
    called: Callable[[], None] | None = None,
) -> list[Any]:
    """Call `function` with every tuple of `calls` on Ray, with the resources of a trial each, and
    return the results. `called` is called once the tasks are submitted."""
    resources = config.resources
    started = connection.connect(address)
    try:
        there = connection.look()
        gpus = resources.whole_gpus if resources.gpus != "auto" or connection.offers_gpus() else 0.0
        need = needs(resources, gpus)
        there.check(need)
        own = {name: n for name, n in need.items() if name not in ("CPU", "GPU")}
        code = _code(config)
        remote = ray.remote(num_cpus=resources.cpus, num_gpus=gpus, resources=own)(with_code)
        with connection.quiet_ray():
            asked = [remote.remote(code, function, *call) for call in calls]
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
            connection.leave()


def run_trials(session: Session, address: str | None = None) -> None:
    """Run the session's trials to the end of its budget, or until an interrupt."""
    resources = session.config.resources
    started = connection.connect(address)
    try:
        session.progress.wait("looking at what Ray has for trials")
        _settle(session)
        searcher = LedgerSearcher(session, Room(session))
        storage = session.folder.path / "ray"
        discard(storage)
        tuner = tune.Tuner(
            tune.with_resources(
                tune.with_parameters(
                    Worker, lent=_lent(session.config), code=_code(session.config)
                ),
                _request(resources),
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
                progress_reporter=tune.CLIReporter(),  # silent; a notebook's clears the cell
                callbacks=[Watcher(searcher, resources.report_within)],
                # The session asks again for a trial whose worker died, and counts the attempts.
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        session.progress.start()
        # Exclude the million objects of torch, Ray and MLflow from every garbage collection.
        gc.freeze()
        try:
            with handlers_restored(), connection.quiet_ray(), deaths_by_memory():
                tuner.fit()
                with contextlib.suppress(Exception):  # no reason to fail a finished search
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
            connection.leave()


def _tidy_other_nodes(session: Session) -> None:
    """Delete the checkpoints of ended trials on nodes with disks of their own: those of killed
    workers, and the last one of every other worker. A node that does not answer keeps them."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    nodes = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] != here]
    if not nodes or session.running or session.paused or session.config.storage is not None:
        return
    forget: Any = ray.remote(num_cpus=0, max_retries=0)(discard)
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    folder = session.folder.path / "trials"
    asked = [forget.options(scheduling_strategy=place).remote(folder) for place in places]
    ray.wait(asked, num_returns=len(asked), timeout=TIDY_SECONDS)


def _settle(session: Session) -> None:
    """Decide the resources of a trial, and check that the cluster has them and that the storage of
    checkpoints can be written, before the first trial is asked for."""
    session.try_storage()
    there = connection.look()
    if session.config.resources.gpus == "auto":
        session.settle_gpus(connection.offers_gpus())
    need = needs(session.config.resources, session.gpus)
    if there.check(need) is not None:
        # A cluster that has just been started may not report yet that it grows.
        time.sleep(LOOK_SECONDS + 1)
        warning = connection.look().check(need)
        if warning is not None:
            session.progress.say(warning)
            session.folder.note_wait(warning)
    unused = there.unused_gpus(need)
    if unused is not None:
        session.progress.say(unused)
    session.waits = waits_for_place(session)
    if session.waits is not None:
        session.progress.say(session.waits)
        session.folder.note_wait(session.waits)
    sent = submission.here()
    if sent is not None and sent.job:  # `bitfront submit` waits for it
        session.progress.say(submission.PASSED)


def _lent(config: SearchConfig) -> dict[str, dict[PartName, list[Any]]]:
    """The training and validation examples, each as a reference to Ray's object store, which copies
    them to every node once, for all its workers. Datasets that are streamed, or larger than half a
    node's store, are read by the workers themselves. A reference is in a list: Ray would fetch a
    bare one."""
    arrays = stored_arrays(config.task.dataset, config.task.data_dir)
    store = min(node.get("object_store_memory", 0.0) for node in connection.look().nodes)
    if arrays is None or sum(x.nbytes + y.nbytes for x, y in arrays.values()) > store / 2:
        return {}
    return {config.task.dataset: {part: [ray.put(pair)] for part, pair in arrays.items()}}


def _code(config: SearchConfig) -> Bundle:
    """The code of the user's own that the trials of a search run, for workers on any machine."""
    return bundle(references_in(config.open_data()))


def with_code(code: Bundle, function: Callable[..., Any], *args: Any) -> Any:
    """Call the function where this code can be loaded; for a worker."""
    unpack(code)
    return function(*args)


def _request(resources: ResourceSpec) -> Request:
    """The resources Ray reserves for a trial."""
    always, on_gpus = needs(resources, 0.0), needs(resources, 1.0)
    beside = {k: v for k, v in on_gpus.items() if k != "GPU" and k not in always}
    return Request(always, beside)
