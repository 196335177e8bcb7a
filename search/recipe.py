"""Recipes: a point of a front as a YAML that needs nothing else, and final training from it. The
only place that touches a test set."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from search.home import write_atomically
from search.results import Results
from search.study import Entry
from search.yaml_source import read as read_yaml
from trainables.kinds import Kind, Metric, kind_of
from trainables.registry import UserError
from trainables.task import Strict, TrialSpec


class FinalTraining(Strict):
    """How the point is trained for good."""

    epochs: Annotated[int, Field(ge=1)]
    seeds: Annotated[list[int], Field(min_length=1)]
    rest: Literal["float32", "float16"] = "float32"
    """how the packed checkpoint stores what is not binary; accuracy is measured so"""


class Provenance(Strict):
    """Where the recipe came from; nothing is read back from there."""

    search: str
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
    from search.environment import version_of

    if entry.state != "complete":
        raise UserError(f"trial {entry.id} is {entry.state}: only a complete one can be exported")
    task = entry.spec.task.model_copy(update={"data_dir": None})
    quality = results.config.quality.name
    expected = {quality: entry.metrics[quality], **entry.costs, "seeds": entry.seeds}
    if entry.spread is not None:
        expected[f"{quality}_std"] = entry.spread
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
    body = yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_atomically(path, head + body)


def load_recipe(path: Path) -> Recipe:
    source = read_yaml(path)
    if "bitfront_recipe" not in source.data:
        raise UserError(
            f"{path}: not a recipe", "make one with: bitfront export SEARCH --budget 40%"
        )
    try:
        return Recipe.model_validate(source.data)
    except ValidationError as error:
        item = error.errors()[0]
        where = source.where(item["loc"])
        key = ".".join(str(p) for p in item["loc"])
        raise UserError(f"{where} {key}: {item['msg']}") from None


@dataclass
class SeedResult:
    seed: int
    metrics: dict[str, float]
    checkpoint: str
    bytes: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        flat = asdict(self)
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
) -> FinalResult:
    """Train on train + validation for every seed, test, and write the packed networks. A seed
    that was interrupted goes on from its last epoch; one that is done is not trained again. A
    full-precision stage is trained on train + validation too, and kept in `stages`."""
    import torch

    from trainables import packed
    from trainables.data import load_test, load_train
    from trainables.distillation import check_teacher
    from trainables.pretraining import StageCache, check_checkpoint
    from trainables.training import (
        Training,
        device_from_resources,
        load_state,
        save_state,
    )

    if threads is not None:
        torch.set_num_threads(threads)
    task = recipe.spec.task.model_copy(update={"epochs": recipe.final.epochs})
    check_teacher(task)
    if task.pretrain.checkpoint is not None:
        note(check_checkpoint(task).text())
    if task.pretrain.epochs:
        note(f"starts from {task.pretrain.epochs} epochs in full precision, trained once")
    cache = StageCache(stages or out / "pretrained")
    data_dir = data_dir or task.data_dir
    train = load_train(task.dataset, data_dir, task.normalize)
    test = load_test(task.dataset, data_dir, task.normalize)
    device = device_from_resources(gpus)
    quality, tested = recipe.quality, f"test_{recipe.quality.bare}"
    done: list[SeedResult] = []
    for seed in recipe.final.seeds:
        result_file = out / f"seed{seed}.json"
        spec = recipe.spec.model_copy(update={"task": task, "seed": seed})
        identity = spec.fingerprint()
        if recipe.final.rest != "float32":
            identity += f"-{recipe.final.rest}"
        finished = _finished(result_file, identity)
        if finished is not None:
            note(f"seed {seed}: already trained, {quality.text(finished.metrics[tested])} test")
            done.append(finished)
            continue
        started = time.perf_counter()
        state = out / f"seed{seed}-{identity}.state"
        training = Training(spec, train, test, device, validate_each_epoch=False, stages=cache)
        if load_state(training, state):
            note(f"seed {seed}: continued after epoch {training.epochs_done}")
        while not training.done:
            metrics = training.epoch()
            save_state(training, state)
            loss = metrics["train_loss"]
            note(f"seed {seed}: epoch {metrics['epoch']}/{task.epochs}, loss {loss:.4f}")
        training.network.verify()
        last = training.history[-1]
        if recipe.final.rest != "float32":
            packed.round_rest(training.network, recipe.final.rest)
            last = training.evaluate()
        measured = {f"test_{m.bare}": last[m.name] for m in recipe.kind.metrics if m.name in last}
        checkpoint = out / f"seed{seed}.safetensors"
        size = packed.save(
            training.network,
            spec,
            checkpoint,
            {tested: measured[tested], "recipe": recipe.name},
            recipe.final.rest,
        )
        result = SeedResult(
            seed=seed,
            metrics=measured,
            checkpoint=str(checkpoint),
            bytes=size,
            seconds=time.perf_counter() - started,
        )
        write_atomically(result_file, json.dumps({"identity": identity, **asdict(result)}))
        state.unlink(missing_ok=True)
        done.append(result)
        note(f"seed {seed}: {quality.text(measured[tested])} test {quality.label}")
    final = FinalResult(recipe.name, tested, task.epochs, len(train), done)
    write_atomically(out / "result.json", json.dumps(final.as_json(), indent=2))
    return final


def _finished(file: Path, identity: str) -> SeedResult | None:
    try:
        stored = json.loads(file.read_text())
        if stored.pop("identity") == identity and Path(stored["checkpoint"]).is_file():
            return SeedResult(**stored)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    return None
