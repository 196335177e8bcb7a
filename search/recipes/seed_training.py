"""Final training of one seed: training, test, and the files it leaves. The only place that touches
a test set. All seeds of a recipe together are in final_training.py."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from bitfront.search.recipes.final_folder import seed_identity
from bitfront.search.recipes.recipe import Recipe
from bitfront.search.recipes.training_progress import EpochReport, SeedView
from bitfront.trainables import packed
from bitfront.trainables.data import Part, load_test, load_train
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.tasks import Kind
from bitfront.trainables.text_files import read_json
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.network import device_from_resources
from bitfront.trainables.training.parts import has_test_part, search_data
from bitfront.trainables.training.peers import Peers
from bitfront.trainables.training.pretraining import PretrainedCache

Saved = Callable[[Path], None]


@dataclass
class SeedResult:
    """What one seed reached on the test set, and its packed network."""

    seed: int
    metrics: dict[str, float]
    checkpoint: str
    bytes: int
    seconds: float
    examples: int

    def as_json(self) -> dict[str, Any]:
        flat = asdict(self)
        del flat["examples"]  # stated once for all seeds
        return {**flat.pop("metrics"), **flat}


@dataclass(frozen=True)
class SeedJob:
    """One seed of a final training: everything its worker must know."""

    recipe: Recipe
    spec: TrialSpec
    out: str
    data_dir: str | None
    pretrained: str
    threads: int | None

    @property
    def identity(self) -> str:
        return seed_identity(self.recipe, self.spec.seed)

    @property
    def best(self) -> bool:
        """Whether the best epoch is kept, by a validation part that is held out."""
        return self.recipe.final.keep == "best"

    @property
    def tested(self) -> str:
        """The name of the quality on the test set."""
        return f"{self.recipe.tested_on}_{self.recipe.quality.bare}"

    @property
    def state(self) -> Path:
        """The checkpoint that an interrupted training continues from."""
        return Path(self.out) / f"seed{self.spec.seed}-{self.identity}.state"

    @property
    def checkpoint(self) -> Path:
        """The packed network."""
        return Path(self.out) / f"seed{self.spec.seed}.safetensors"

    @property
    def result_file(self) -> Path:
        return Path(self.out) / f"seed{self.spec.seed}.json"

    def finished(self) -> SeedResult | None:
        """The stored result of this seed; None where it is not trained completely. The folder may
        have been moved since."""
        result = finished_seed(self.result_file, self.checkpoint, self.identity)
        if result is None or result.seed != self.spec.seed or self.tested not in result.metrics:
            return None
        try:
            packed.describe(self.checkpoint)
        except UserError:
            return None
        return result


def finished_seed(file: Path, checkpoint: Path, identity: str) -> SeedResult | None:
    """The result stored in `file`; None where it is missing, damaged or of another training."""
    try:
        stored = read_json(file)
        if not isinstance(stored, dict) or stored.pop("identity", None) != identity:
            return None
        stored["checkpoint"] = str(checkpoint)
        result = TypeAdapter(SeedResult).validate_python(stored)
    except (UserError, ValidationError):
        return None
    usable = all(map(math.isfinite, result.metrics.values())) and result.bytes >= 0
    return result if usable and checkpoint.is_file() else None


def train_seed(
    job: SeedJob,
    gpus: float,
    view: SeedView,
    peers: Peers | None = None,
    saved: Saved = lambda _file: None,
) -> None:
    """Train, test and write what `SeedJob.finished` reads back. With `peers` all workers train and
    the first one writes; `saved` is called with every file that was written."""
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    train, validation, test = final_parts(job)
    tested = _attacking(job.spec, len(test))
    started = time.perf_counter()
    training = Training(
        _keeping_best(job.spec) if job.best else tested,
        train,
        validation,
        device_from_resources(gpus),
        validate_each_epoch=job.best,
        pretrained=PretrainedCache(Path(job.pretrained)),
        peers=peers,
    )
    first = peers is None or peers.rank == 0
    _train_epochs(job, training, view, saved if first else None)
    if not first:
        return
    measured = _test(job, training, test, tested)
    size = packed.save(
        training.network,
        job.spec,
        job.checkpoint,
        {job.tested: measured[job.tested], "recipe": job.recipe.name},
        job.recipe.final.rest,
    )
    result = SeedResult(
        seed=job.spec.seed,
        metrics=measured,
        checkpoint=str(job.checkpoint),
        bytes=size,
        seconds=time.perf_counter() - started,
        examples=len(train),
    )
    saved(job.checkpoint)
    write_atomically(job.result_file, json.dumps({"identity": job.identity, **asdict(result)}))
    saved(job.result_file)
    job.state.unlink(missing_ok=True)
    quality, mean = job.recipe.quality, measured.get(f"{job.tested}_draws")
    drawn = f", {quality.text(mean)} for the mean over draws" if mean is not None else ""
    reached = quality.text(measured[job.tested])
    part = job.recipe.part_in_words
    which = f", best epoch {measured['best_epoch']:.0f}" if job.best else ""
    view.note(f"seed {job.spec.seed}: {reached} {part} {quality.label}{drawn}{which}")


def final_data(task: Task, data_dir: str | None) -> tuple[Part, Part]:
    """(training part, part that the network is measured on) of final training: training and
    validation examples together and the test part or, without a test part, as in the search."""
    if has_test_part(task):
        train = load_train(task.dataset, data_dir, task.normalize)
        return train, load_test(task.dataset, data_dir, task.normalize)
    return search_data(task.model_copy(update={"subset": None, "data_dir": data_dir}))


def final_parts(job: SeedJob) -> tuple[Part, Part, Part]:
    """(training part, part that is evaluated while training, part that the network is measured on)
    of a final training. The second one is held out for the best epoch; else it is the third."""
    task = job.spec.task
    if not job.best:
        train, test = final_data(task, job.data_dir)
        return train, test, test
    whole = task.model_copy(update={"subset": None, "data_dir": job.data_dir})
    train, validation = search_data(whole)
    if not has_test_part(task):
        return train, validation, validation
    return train, validation, load_test(task.dataset, job.data_dir, task.normalize)


def _keeping_best(spec: TrialSpec) -> TrialSpec:
    return spec.model_copy(update={"task": spec.task.model_copy(update={"keep": "best"})})


def _attacking(spec: TrialSpec, examples: int) -> TrialSpec:
    """The spec with all `examples` of the test part attacked, or as many as it says."""
    attack = spec.task.attack
    if not attack.evaluate:
        return spec
    attack = attack.model_copy(update={"examples": attack.final_examples or examples})
    return spec.model_copy(update={"task": spec.task.model_copy(update={"attack": attack})})


def _train_epochs(job: SeedJob, training: Training, view: SeedView, saved: Saved | None) -> None:
    """Train to the last epoch, from the stored state where there is one. Only the worker that is
    given `saved` writes states and reports epochs."""
    seed, epochs = job.spec.seed, job.spec.task.epochs
    resumed = load_state(training, job.state, lambda text: view.note(f"seed {seed}: {text}"))
    if saved is not None:
        if resumed:
            view.note(f"seed {seed}: continued after epoch {training.epochs_done}")
        view.epoch(EpochReport(seed, training.epochs_done, epochs))
    soft = training.method.soft and bool(training.network.binary)
    while not training.done:
        metrics = training.epoch()
        if saved is not None:
            save_state(training, job.state)
            saved(job.state)
            reached, loss = training.quality_in_training(), metrics["train_loss"]
            held_out = metrics[job.recipe.quality.name] if job.best else None
            report = EpochReport(seed, int(metrics["epoch"]), epochs, loss, reached, soft)
            view.epoch(replace(report, validation=held_out))


def _test(job: SeedJob, training: Training, test: Part, spec: TrialSpec) -> dict[str, float]:
    """Check that the trained network is binary, and measure it on the test set as it is stored.
    Where the best epoch was kept, say which one, and what it had on the validation part."""
    training.network.verify()
    last, rest = training.history[-1], job.recipe.final.rest
    if rest != "float32":
        packed.round_rest(training.network, rest)
    measured = last
    if rest != "float32" or job.best:
        measured = training.test(test, spec)
    found = _tested(job.recipe.kind, measured, job.recipe.tested_on)
    if job.best:
        quality = job.recipe.quality.name
        best = last.get("best_epoch", last["epoch"])  # a pruned network may have none
        found = {**found, quality: last[quality], "best_epoch": best}
    return found


def _tested(kind: Kind, last: dict[str, float], part: str) -> dict[str, float]:
    """The last evaluation under the names of test metrics, which begin with `part`. `_draws` is the
    mean over draws of the weights; `_mean` in a result is that over seeds."""
    metrics = {f"{part}_{m.bare}": last[m.name] for m in kind.metrics if m.name in last}
    drawn = {m: last.get(f"{m.name}_mean") for m in kind.metrics}
    on_train = f"train_{kind.quality.bare}"
    metrics |= {name: last[name] for name in (on_train, f"{on_train}_mean") if name in last}
    return metrics | {f"{part}_{m.bare}_draws": v for m, v in drawn.items() if v is not None}
