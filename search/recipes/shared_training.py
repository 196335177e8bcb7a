"""Final training by several Ray workers: Ray Train starts and connects them, every batch is divided
among them, and an actor on the driver's node stores what the first worker writes. When a worker
dies all are started again, and training continues after the last epoch."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bitfront.search.cluster import connection
from bitfront.search.cluster.resources import amounts_text
from bitfront.search.recipes.seed_training import SeedJob, train_seed
from bitfront.search.recipes.training_progress import EpochReport, SeedView
from bitfront.search.session.interrupts import held_back
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.own_code import bundle, references_in, unpack
from bitfront.trainables.training.peers import Peers, check_shareable
from bitfront.trainables.worker.log import LOG_MB, limit_log

# How often the workers are started again after one of them died.
LIVES = 3
# Seconds between two reads of the workers' notes.
NOTE_SECONDS = 0.5


class Keeper:
    """An actor on the driver's node: it stores files for the workers and passes on their notes."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.notes: list[str | EpochReport] = []

    def load(self, name: str) -> bytes | None:
        file = self.folder / name
        return file.read_bytes() if file.exists() else None

    def save(self, name: str, content: bytes) -> None:
        write_atomically(self.folder / name, content)

    def note(self, note: str | EpochReport) -> None:
        self.notes.append(note)

    def take(self) -> list[str | EpochReport]:
        taken, self.notes = self.notes, []
        return taken


def train_shared(
    jobs: Sequence[SeedJob],
    workers: int,
    address: str | None,
    gpus: float,
    view: SeedView,
) -> None:
    """Train the seeds one after another, each with all workers together."""
    for job in jobs:
        check_shareable(job.spec, workers)
    if not jobs:
        return
    started = connection.connect(address)
    try:
        gpu = gpus > 0 and connection.offers_gpus()
        there = connection.look()
        need = {"CPU": float(jobs[0].threads or 1), **({"GPU": 1.0} if gpu else {})}
        fit = there.slots(need)
        if fit < workers and not there.grows:
            wanted = amounts_text(need)
            raise UserError(
                f"--workers {workers}: {fit} fit, with {wanted} each: Ray has {there.text()}",
                "fewer workers, fewer --threads, or a larger cluster",
            )
        for job in jobs:
            _train(job, workers, need, view)
    finally:
        if started:
            connection.leave()


def _train(job: SeedJob, workers: int, need: dict[str, float], view: SeedView) -> None:
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    folder = str(Path(job.out).resolve())
    keeper: Any = ray.remote(num_cpus=0)(Keeper).options(scheduling_strategy=here).remote(folder)
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    scratch = tempfile.mkdtemp(prefix="bitfront-train-")
    ended = threading.Event()
    reader = threading.Thread(target=_pass_on, args=(keeper, view, ended))
    try:
        with held_back():  # a thread whose start is interrupted cannot be joined
            reader.start()
        TorchTrainer(
            _worker,
            train_loop_config={
                "job": job,
                "keeper": keeper,
                "gpus": need.get("GPU", 0.0),
                "code": bundle(references_in(job.spec.model_dump(mode="json"))),
            },
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu="GPU" in need, resources_per_worker=need
            ),
            run_config=RunConfig(
                storage_path=scratch, failure_config=FailureConfig(max_failures=LIVES)
            ),
        ).fit()
    finally:
        ended.set()
        reader.join()
        ray.kill(keeper)
        shutil.rmtree(scratch, ignore_errors=True)
    if job.finished() is not None:
        job.state.unlink(missing_ok=True)


@dataclass
class _Sender:
    """The view of a worker: sends notes and epochs to the keeper."""

    keeper: Any

    def note(self, text: str) -> None:
        self.keeper.note.remote(text)

    def epoch(self, report: EpochReport) -> None:
        self.keeper.note.remote(report)


def _pass_on(keeper: Any, view: SeedView, ended: threading.Event) -> None:
    """Give the view what the workers sent, until they have ended."""
    last = False
    while not last:
        last = ended.wait(NOTE_SECONDS)
        for note in ray.get(keeper.take.remote()):
            if isinstance(note, str):
                view.note(note)
            else:
                view.epoch(note)


def _worker(config: dict[str, Any]) -> None:
    """What every worker does: fetch the last state, train, and send the files it writes."""
    limit_log(LOG_MB)
    unpack(config["code"])
    job, keeper = config["job"], config["keeper"]
    with tempfile.TemporaryDirectory(prefix="bitfront-worker-") as folder:
        mine = replace(job, out=folder)
        state = ray.get(keeper.load.remote(mine.state.name))
        if state is not None:
            mine.state.write_bytes(state)

        def saved(file: Path) -> None:
            content = file.read_bytes()
            if file == mine.result_file:  # it names the checkpoint, which moves
                content = content.replace(folder.encode(), job.out.encode())
            ray.get(keeper.save.remote(file.name, content))

        train_seed(mine, config["gpus"], _Sender(keeper), Peers(), saved)
