"""The faults of `benchmarks.chaos`: each sets a stage and says how it strikes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import faulty
from testbed.rig import (
    POSTGRES,
    CannotStrikeError,
    Cluster,
    Namespaces,
    Postgres,
    User,
    end,
    free_port,
    kill,
    listens,
    namespaces_work,
    small_disk,
    start_tracking_server,
    wait_for,
)

TRIALS = 24
EPOCHS = 3
# Where a strike takes long, epochs do too, or few strikes hit a search.
LONG = 3.0
SEARCH = f"""\
name: chaos
task:
  dataset: digits
  model: {{name: mlp, depth: 4, width: 16}}
  epochs: {EPOCHS}
  batch_size: 64
  subset: 300
  optimizer: {{name: adam, lr: 0.01}}
space:
  method: [bnn, bc]
  plan: {{per: layer, levels: [F, B]}}
  optimizer.lr: {{float: [0.003, 0.03], log: true}}
search: {{sampler: random, trials: {TRIALS}, seed: 0}}
resources: {{cpus: 1, retries: 50}}
"""


@dataclass
class Stage:
    """One search that a fault strikes."""

    folder: Path
    cluster: Cluster
    user: User
    trials: list[str]
    """ids of the search's trials"""
    rng: random.Random
    fire: Callable[[], bool] = lambda: False
    """strikes once, if there is something to strike; called while the driver runs"""
    pause: float = 2.0
    """seconds from an epoch's begin to the next strike, on average"""
    turns: int = 1
    """of the driver: the trials are shared out among them, `extend` begins the next one"""
    between: Callable[[], None] = lambda: None
    """what happens after every turn"""
    afterwards: list[str] = field(default_factory=list)
    """a command of the user when the search has ended"""
    options: list[str] = field(default_factory=list)
    """of `bitfront run`"""
    store: str = ""
    """where MLflow keeps its runs"""
    pace: float = 1.0
    """seconds an epoch takes besides its training"""
    faults: dict[str, Any] = field(default_factory=dict)
    """what trials do wrong"""
    may_fail: dict[str, str] = field(default_factory=dict)
    restarts: bool = False
    """whether a strike ends the driver, which is started again then"""
    gently: bool = False
    """whether it ends as with ctrl-C"""
    strikes: int = 0
    """so far"""


Fault = Callable[[Stage], Iterator[None]]
FAULTS: dict[str, Callable[[Stage], AbstractContextManager[None]]] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    def register(function: Fault) -> Fault:
        FAULTS[name] = contextmanager(function)
        return function

    return register


@fault("driver killed")
def driver_killed(stage: Stage) -> Iterator[None]:
    """kill -9 of the driver; the search is resumed"""

    def fire() -> bool:
        assert stage.user.process is not None
        kill(stage.user.process.pid)
        return True

    stage.fire, stage.restarts = fire, True
    stage.pace = 0.4  # a driver and its workers take long to come back
    yield


@fault("driver stopped")
def driver_stopped(stage: Stage) -> Iterator[None]:
    """ctrl-C or SIGTERM at any moment, at times a second one while the driver ends; the search is
    resumed"""

    def fire() -> bool:
        holder = stage.user.search.driver if stage.user.search.exists else None
        if holder is None:  # nothing has begun that could be lost
            return False
        os.kill(holder[1], stage.rng.choice((signal.SIGINT, signal.SIGTERM)))
        return True

    stage.fire, stage.restarts, stage.gently = fire, True, True
    stage.pace = 0.4
    yield


@fault("worker killed")
def worker_killed(stage: Stage) -> Iterator[None]:
    """kill -9 of a worker"""

    def fire() -> bool:
        workers = stage.cluster.trial_workers()
        if workers:
            kill(stage.rng.choice(workers))
        return bool(workers)

    stage.fire = fire
    yield


@fault("node killed")
def node_killed(stage: Stage) -> Iterator[None]:
    """kill -9 of one of three nodes; another one comes"""
    fresh = iter(range(3, 1000))

    def fire() -> bool:
        stage.cluster.kill(stage.rng.choice([n for n in stage.cluster.nodes if n != 0]))
        stage.cluster.start_node(next(fresh))
        return True

    with _own_cluster(stage, nodes=2):
        stage.fire = fire
        stage.pace = LONG
        yield


@fault("node cut off")
def node_cut_off(stage: Stage) -> Iterator[None]:
    """the cable of one of three nodes is out for 3 to 15 s, at times 40 (network namespaces)"""
    if not namespaces_work():
        raise CannotStrikeError("this machine makes no network namespaces")
    networks = Namespaces(3)

    def fire() -> bool:
        node = stage.rng.choice([1, 2])
        networks.cut(node)
        time.sleep(40 if stage.rng.random() < 0.15 else stage.rng.uniform(3, 15))
        networks.cut(node, up=True)
        time.sleep(3)
        if stage.cluster.nodes[node].poll() is not None:  # the head had given it up
            stage.cluster.kill(node)
            stage.cluster.start_node(node)
        return True

    try:
        with _own_cluster(stage, 2, inside=networks.inside, host=networks.host):
            stage.user.inside = networks.inside(0)
            stage.fire = fire
            stage.pace = LONG
            yield
    finally:
        networks.remove()


@fault("head restarted")
def head_restarted(stage: Stage) -> Iterator[None]:
    """kill -9 of the cluster's only node; a new head, the search is resumed"""

    def fire() -> bool:
        stage.cluster.kill(0)
        assert stage.user.process is not None
        try:  # a driver notices within a minute; now and then nobody waits for that
            stage.user.process.wait(120 if stage.rng.random() < 0.1 else 1)
        except subprocess.TimeoutExpired:
            end(stage.user.process)
        stage.cluster.start_head()
        return True

    with _own_cluster(stage, nodes=0):
        stage.fire, stage.restarts = fire, True
        stage.pace = 0.5  # a cluster takes long to come back
        yield


@contextmanager
def _own_cluster(stage: Stage, nodes: int, **how: Any) -> Iterator[None]:
    """Another cluster than the one all searches share: a head, and nodes of one core."""
    shared = stage.cluster
    stage.cluster = Cluster(shared.folder, head_cpus=0 if nodes else 2, **how)
    try:
        stage.cluster.start_head()
        for node in range(1, nodes + 1):
            stage.cluster.start_node(node)
        stage.user.env |= stage.cluster.env
        stage.user.address = stage.cluster.address
        yield
    finally:
        stage.user.leave()
        stage.cluster.stop()
        stage.cluster = shared


class _TrackingServer:
    """A tracking server that comes and goes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.start()

    def start(self) -> None:
        self.process = start_tracking_server(self.folder, self.port)
        wait_for(lambda: listens(self.port), 120, "the tracking server")

    def back(self) -> None:
        if self.process.poll() is not None:
            self.start()

    def restart(self, seconds: float) -> None:
        end(self.process)
        time.sleep(seconds)
        self.start()

    def freeze(self, seconds: float) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.killpg(self.process.pid, signal.SIGCONT)


@contextmanager
def _tracking(stage: Stage) -> Iterator[_TrackingServer]:
    server = _TrackingServer(stage.folder)
    stage.options += ["--set", f"tracking.uri=http://127.0.0.1:{server.port}"]
    stage.store = f"sqlite:///{stage.folder / 'server.db'}"
    try:
        yield server
    finally:
        end(server.process)


@fault("tracking away")
def tracking_away(stage: Stage) -> Iterator[None]:
    """the tracking server is killed or frozen for 2 to 10 s, at times a minute, and starts
    again, which takes as long (tracking.patience: 300)"""
    stage.options += ["--set", "tracking.patience=300"]
    with _tracking(stage) as server:

        def fire() -> bool:
            seconds = 60.0 if stage.rng.random() < 0.1 else stage.rng.uniform(2, 10)
            stage.rng.choice([server.freeze, server.restart])(seconds)
            return True

        stage.fire = fire
        stage.pace = 2 * LONG
        yield


@fault("tracking gone")
def tracking_gone(stage: Stage) -> Iterator[None]:
    """the tracking server is killed and stays away for the rest of the driver's turn; the next one,
    and in the end `resume`, finds it there again"""
    with _tracking(stage) as server:

        def fire() -> bool:
            there = server.process.poll() is None
            end(server.process)
            return there

        stage.options += ["--set", "tracking.patience=5"]
        stage.fire, stage.afterwards = fire, ["resume", "chaos"]
        stage.turns, stage.between = 12, server.back  # it strikes once a turn
        yield


@fault("postgres restarted")
def postgres_restarted(stage: Stage) -> Iterator[None]:
    """PostgreSQL under the ledger is stopped at once, and back after 0 to 8 s"""
    if not POSTGRES:
        raise CannotStrikeError("PostgreSQL is not installed: apt-get install postgresql")
    server = Postgres()

    def fire() -> bool:
        server.stop()
        time.sleep(stage.rng.uniform(0, 8))
        server.start()
        return True

    stage.options += ["--ledger", server.url]
    stage.fire = fire
    stage.pace = LONG
    try:
        yield
    finally:
        stage.user.leave()
        server.remove()


@fault("disk full")
def disk_full(stage: Stage) -> Iterator[None]:
    """the disk of checkpoints, ledger and MLflow's file is full for 1 to 6 s"""
    if os.getuid() != 0:
        raise CannotStrikeError("only root can mount a small disk")
    with small_disk(stage.folder / "user" / "runs", "64m") as disk:

        def fire() -> bool:
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as out:
                try:
                    while out.write(b"\0" * 65536):
                        pass
                except OSError:
                    time.sleep(stage.rng.uniform(1, 6))
            filler.unlink()
            return True

        stage.fire = fire
        stage.pace = LONG
        yield


@fault("checkpoint truncated")
def checkpoint_truncated(stage: Stage) -> Iterator[None]:
    """a checkpoint is cut short or overwritten, and its worker killed"""

    def fire() -> bool:
        found = stage.user.checkpoints()
        busy = {row.trial: row.worker for row in faulty.audit(stage.cluster.folder)}
        if not found:
            return False
        chosen = stage.rng.choice(found)
        try:
            data = chosen.read_bytes()
            cut = data[: stage.rng.randrange(len(data) + 1)]
            chosen.write_bytes(cut if stage.rng.random() < 0.7 else b"\0" * len(data))
        except OSError:  # the trial ended just now
            return False
        kill(busy[chosen.parent.name])
        return True

    stage.fire = fire
    yield


def _misbehaving(stage: Stage, kind: str, reason: str | None, share: float) -> Iterator[None]:
    """Some trials misbehave, in a random epoch. `reason` is what the ledger must say then."""
    for trial in stage.trials:
        if stage.rng.random() < share:
            stage.faults[trial] = {"kind": kind, "epoch": stage.rng.randint(1, EPOCHS)}
            if reason is not None:
                stage.may_fail[trial] = reason
    stage.pace = 0.0
    yield


@fault("trial raises")
def trial_raises(stage: Stage) -> Iterator[None]:
    """a trial raises an exception"""
    yield from _misbehaving(stage, "raise", "error", 0.6)


@fault("trial returns nan")
def trial_returns_nan(stage: Stage) -> Iterator[None]:
    """a trial's weights become NaN"""
    yield from _misbehaving(stage, "nan", "nan", 0.6)


@fault("trial leaks")
def trial_leaks(stage: Stage) -> Iterator[None]:
    """a trial takes memory without end (resources.memory: 0.5 GB)"""
    stage.options += ["--set", "resources.memory=0.5"]
    yield from _misbehaving(stage, "leak", "oom", 0.6)


@fault("trial hangs")
def trial_hangs(stage: Stage) -> Iterator[None]:
    """a trial says nothing more (resources.report_within: 15 s, no second life)"""
    stage.options += ["--set", "resources.report_within=15", "--set", "resources.retries=0"]
    yield from _misbehaving(stage, "hang", "hung", 0.7)


@fault("trial prints")
def trial_prints(stage: Stage) -> Iterator[None]:
    """a trial prints a gigabyte"""
    yield from _misbehaving(stage, "print", None, 0.7)
