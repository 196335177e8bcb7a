"""Recipes: a point of a front as a YAML that needs nothing else, and final training from it. The
only place that touches a test set."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from bitfront.search.config.mistakes import first_mistake
from bitfront.search.config.source import Source
from bitfront.search.config.source import read as read_yaml
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import NAME
from bitfront.search.ledger.states import TrialState
from bitfront.search.recipes.final_folder import (
    RESULT,
    check_free,
    claimed,
    final_spec,
    seed_identity,
    trained_seeds,
)
from bitfront.search.recipes.training_progress import EpochTold, Lines, Shown, ShownTraining
from bitfront.search.results.results import Results
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.metrics import Metric
from bitfront.trainables.settings import Strict
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.tasks import Kind, kind_of
from bitfront.trainables.text_files import check_format, dump_yaml, read_json, whole_path

if TYPE_CHECKING:
    from bitfront.trainables.training.peers import Peers


RECIPE_FORMAT = 1


class FinalTraining(Strict):
    """How the point is trained for good."""

    epochs: Annotated[int, Field(ge=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    rest: Literal["float32", "float16"] = "float32"
    """how the packed checkpoint stores what is not binary; accuracy is measured so"""


class Provenance(Strict):
    """Where the recipe came from. Where that search is here, final trainings are noted in it."""

    search: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    trial: str
    number: int
    bitfront: str
    exported: str


class Recipe(Strict):
    """A self-contained description of a final training."""

    bitfront_recipe: Literal[1] = 1
    name: str
    spec: TrialSpec
    final: FinalTraining
    expected: dict[str, float] = Field(default_factory=dict)
    provenance: Provenance | None = None

    @property
    def kind(self) -> Kind:
        return kind_of(self.spec.task.dataset)

    @property
    def quality(self) -> Metric:
        """What the search chose the point by."""
        known = [m for m in self.kind.metrics if m.name in self.expected]
        return known[0] if known else self.kind.quality


def recipe_of(results: Results, entry: Entry, epochs: int | None, seeds: list[int]) -> Recipe:
    from bitfront.search.ledger.environment import version_of

    if entry.state != TrialState.COMPLETE:
        raise UserError(f"trial {entry.id} is {entry.state}: only a complete one can be exported")
    task = entry.spec.task.model_copy(update={"data_dir": None})
    quality = results.config.quality.name
    expected = {quality: entry.metrics[quality], **entry.costs, "seeds": entry.seeds}
    if entry.own_spread is not None:
        expected[f"{quality}_std"] = entry.own_spread
    return Recipe(
        name=f"{results.config.name}-{entry.id}",
        spec=entry.spec.model_copy(update={"task": task}),
        final=FinalTraining(epochs=epochs or entry.spec.task.epochs, seeds=seeds),
        expected=expected,
        provenance=Provenance(
            search=results.config.name,
            trial=entry.id,
            number=entry.number,
            bitfront=version_of("bitfront"),
            exported=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        ),
    )


def save_recipe(recipe: Recipe, path: Path) -> None:
    reached = recipe.quality.text(recipe.expected[recipe.quality.name])
    head = (
        f"# A bitfront recipe: {reached} validation {recipe.quality.label}, "
        f"{recipe.expected['flops']:,.0f} FLOPs (MixBin convention).\n"
        f"# Final training: bitfront train {path.name}\n"
    )
    write_atomically(path, head + dump_yaml(recipe.model_dump(mode="json")))


def may_save(recipe: Recipe, path: Path) -> bool:
    """Whether nothing is lost by it: nothing is there, or the same recipe."""
    if not path.exists():
        return True
    try:
        there = load_recipe(path)
    except UserError:
        return False
    return _lasting(there) == _lasting(recipe)


def _lasting(recipe: Recipe) -> dict[str, Any]:
    """A recipe without when, and by which version, it was written."""
    content = recipe.model_dump(mode="json")
    for key in ("exported", "bitfront"):
        (content["provenance"] or {}).pop(key, None)
    return content


def save_beside(recipe: Recipe, path: Path, force: bool = False) -> Path:
    """Write the recipe and return where: at `path`, or numbered beside it where that holds another
    one. A file that holds this one already stays as it is, with what its reader noted in it."""
    names = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
    for file in itertools.chain([path], names):
        if force or not file.exists():
            save_recipe(recipe, file)
            return file
        if may_save(recipe, file):
            return file
    raise AssertionError  # there is always another number


def check_test_part(recipe: Recipe, data_dir: str | None) -> None:
    """Data without a test part are told before hours of training, not after."""
    from bitfront.trainables.data import missing_test

    task = recipe.spec.task
    missing = missing_test(task.dataset, data_dir or task.data_dir)
    if missing is not None:
        raise UserError(f"final training needs a test part: {missing}")


def load_recipe(path: Path) -> Recipe:
    source = read_yaml(path)
    if "bitfront_recipe" not in source.data:
        raise UserError(
            f"{path}: not a recipe", "make one with: bitfront export SEARCH --budget 40%"
        )
    check_format(source.data["bitfront_recipe"], RECIPE_FORMAT, f"{path}: the recipe")
    _mend_trial(source)
    try:
        return Recipe.model_validate(source.data)
    except ValidationError as error:
        wrong, told = first_mistake(error, source.data)
        key = ".".join(map(str, wrong))
        raise UserError(f"{source.where(wrong)} {key}: {told}") from None


def _mend_trial(source: Source) -> None:
    """Version 0.1 wrote ids such as 38580e12 without quotes, which makes a number of them."""
    provenance = source.data.get("provenance")
    if isinstance(provenance, dict) and isinstance(provenance.get("trial"), int | float):
        provenance["trial"] = source.written[("provenance", "trial")]


@dataclass
class SeedResult:
    seed: int
    metrics: dict[str, float]
    checkpoint: str
    bytes: int
    seconds: float
    examples: int

    def as_json(self) -> dict[str, Any]:
        flat = asdict(self)
        del flat["examples"]  # told once for all seeds
        return {**flat.pop("metrics"), **flat}


@dataclass
class FinalResult:
    """What final training reports."""

    recipe: str
    quality: str
    epochs: int
    train_examples: int
    seeds: list[SeedResult]

    @property
    def values(self) -> list[float]:
        """The quality on the test set, by seed."""
        return [seed.metrics[self.quality] for seed in self.seeds]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Sample standard deviation over seeds; 0 for one seed."""
        return statistics.stdev(self.values) if len(self.seeds) > 1 else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "epochs": self.epochs,
            "train_examples": self.train_examples,
            "seeds": [seed.as_json() for seed in self.seeds],
            f"{self.quality}_mean": self.mean,
            f"{self.quality}_std": self.spread,
        }


def train_recipe(
    recipe: Recipe,
    out: Path,
    data_dir: str | None = None,
    gpus: float = 1.0,
    threads: int | None = None,
    note: Callable[[str], None] = lambda text: None,
    stages: Path | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: ShownTraining | None = None,
) -> FinalResult:
    """Train on train + validation for every seed, test, and write the packed networks. A seed
    that was interrupted goes on from its last epoch; one that is done is not trained again, and a
    folder with the training of another recipe is refused. A full-precision stage is trained on
    train + validation too, and kept in `stages`. With `workers` every seed is trained by so many,
    on Ray. `progress` shows epochs; without one they are told to `note`."""
    from bitfront.trainables.training.distillation import check_teacher
    from bitfront.trainables.training.pretraining import check_checkpoint

    task = recipe.spec.task.model_copy(update={"epochs": recipe.final.epochs})
    check_teacher(task)
    if task.pretrain.checkpoint is not None:
        note(check_checkpoint(task).text())
    if task.pretrain.epochs:
        note(f"starts from {task.pretrain.epochs} epochs in full precision, trained once")
    if data_dir is not None:  # workers run in folders of their own
        data_dir = str(whole_path(data_dir))
    data_dir = data_dir or task.data_dir
    stages = stages or out / "pretrained"
    tested = f"test_{recipe.quality.bare}"

    def job_of(seed: int) -> SeedJob:
        spec = final_spec(recipe, seed)
        return SeedJob(recipe, spec, str(out), data_dir, str(stages), threads)

    with claimed(out, recipe):
        jobs = [job_of(seed) for seed in dict.fromkeys(recipe.final.seeds)]
        waiting = []
        for job in jobs:
            found = job.finished()
            if found is None:
                check_free(recipe, out, job.spec.seed)
                waiting.append(job)
            else:
                reached = recipe.quality.text(found.metrics[tested])
                note(f"seed {job.spec.seed}: already trained, {reached} test")
        view = progress or Lines(note)
        view.start(recipe, len(waiting))
        try:
            if workers is not None:
                from bitfront.search.recipes.workers import train_shared

                train_shared(waiting, workers, address, gpus, view)
            else:
                for job in waiting:
                    train_seed(job, gpus, view)
        finally:
            view.stop()
        done = [found for job in jobs if (found := job.finished()) is not None]
        # Seeds of this recipe that were trained before and not asked for now are results too.
        others = {job.spec.seed for job in jobs}
        more = (job_of(seed).finished() for seed in trained_seeds(out) if seed not in others)
        every = sorted([*done, *(m for m in more if m is not None)], key=lambda s: s.seed)
        told = FinalResult(recipe.name, tested, task.epochs, done[0].examples, every)
        write_atomically(out / RESULT, json.dumps(told.as_json(), indent=2))
    return FinalResult(recipe.name, tested, task.epochs, done[0].examples, done)


def _tested(kind: Kind, last: dict[str, float]) -> dict[str, float]:
    """What was measured on the test set. `_draws` is the mean over draws of the weights; `_mean` in
    a result is that over seeds."""
    found = {f"test_{m.bare}": last[m.name] for m in kind.metrics if m.name in last}
    drawn = {m: last.get(f"{m.name}_mean") for m in kind.metrics}
    return found | {f"test_{m.bare}_draws": v for m, v in drawn.items() if v is not None}


@dataclass(frozen=True)
class SeedJob:
    """One seed of a final training: everything its worker must know."""

    recipe: Recipe
    spec: TrialSpec
    out: str
    data_dir: str | None
    stages: str
    threads: int | None

    @property
    def identity(self) -> str:
        return seed_identity(self.recipe, self.spec.seed)

    @property
    def state(self) -> Path:
        return Path(self.out) / f"seed{self.spec.seed}-{self.identity}.state"

    @property
    def checkpoint(self) -> Path:
        return Path(self.out) / f"seed{self.spec.seed}.safetensors"

    @property
    def result_file(self) -> Path:
        return Path(self.out) / f"seed{self.spec.seed}.json"

    def finished(self) -> SeedResult | None:
        """What was found, if it was; the files may have been moved together since."""
        from bitfront.trainables import packed

        found = finished_seed(self.result_file, self.checkpoint, self.identity)
        tested = f"test_{self.recipe.quality.bare}"
        if found is None or found.seed != self.spec.seed or tested not in found.metrics:
            return None
        try:
            packed.describe(self.checkpoint)
        except UserError:
            return None
        return found


def finished_seed(file: Path, checkpoint: Path, identity: str) -> SeedResult | None:
    """The stored result of a seed; None where it is not there, damaged or of something else."""
    try:
        stored = read_json(file)
        if not isinstance(stored, dict) or stored.pop("identity", None) != identity:
            return None
        stored["checkpoint"] = str(checkpoint)
        found = TypeAdapter(SeedResult).validate_python(stored)
    except (UserError, ValidationError):
        return None
    usable = all(map(math.isfinite, found.metrics.values())) and found.bytes >= 0
    return found if usable and checkpoint.is_file() else None


def train_seed(
    job: SeedJob,
    gpus: float,
    view: Shown,
    peers: Peers | None = None,
    saved: Callable[[Path], None] = lambda file: None,
) -> None:
    """Train, test and write what `SeedJob.finished` reads back. Of several workers all train and
    the first one writes; `saved` hears of every file."""
    import torch

    from bitfront.trainables import packed
    from bitfront.trainables.data import load_test, load_train
    from bitfront.trainables.training.checkpoints import load_state, save_state
    from bitfront.trainables.training.loop import Training
    from bitfront.trainables.training.network import device_from_resources
    from bitfront.trainables.training.pretraining import PretrainedCache

    if job.threads is not None:
        torch.set_num_threads(job.threads)
    recipe, spec, task = job.recipe, job.spec, job.spec.task
    train = load_train(task.dataset, job.data_dir, task.normalize)
    test = load_test(task.dataset, job.data_dir, task.normalize)
    started = time.perf_counter()
    training = Training(
        spec,
        train,
        test,
        device_from_resources(gpus),
        validate_each_epoch=False,
        pretrained=PretrainedCache(Path(job.stages)),
        peers=peers,
    )
    first = peers is None or peers.rank == 0
    told = f"seed {spec.seed}: "
    resumed = load_state(training, job.state, lambda text: view.note(f"{told}{text}"))
    if resumed and first:
        view.note(f"{told}continued after epoch {training.epochs_done}")
    if first:
        view.epoch(EpochTold(spec.seed, training.epochs_done, task.epochs))
    while not training.done:
        metrics = training.epoch()
        if first:
            save_state(training, job.state)
            saved(job.state)
            reached = training.quality_in_training()
            loss = metrics["train_loss"]
            view.epoch(EpochTold(spec.seed, int(metrics["epoch"]), task.epochs, loss, reached))
    if not first:
        return
    training.network.verify()
    last = training.history[-1]
    if recipe.final.rest != "float32":
        packed.round_rest(training.network, recipe.final.rest)
        last = training.evaluate()
    measured = _tested(recipe.kind, last)
    tested = f"test_{recipe.quality.bare}"
    size = packed.save(
        training.network,
        spec,
        job.checkpoint,
        {tested: measured[tested], "recipe": recipe.name},
        recipe.final.rest,
    )
    result = SeedResult(
        seed=spec.seed,
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
    quality, mean = recipe.quality, measured.get(f"{tested}_draws")
    drawn = f", {quality.text(mean)} for the mean over draws" if mean is not None else ""
    view.note(f"{told}{quality.text(measured[tested])} test {quality.label}{drawn}")
