"""Final training of a recipe: its seeds one after another, here or on Ray workers, and the result
over them. What happens with one seed is in seed_training.py."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitfront.search.recipes.final_folder import (
    RESULT,
    check_free,
    claimed,
    final_spec,
    trained_seeds,
)
from bitfront.search.recipes.recipe import Recipe
from bitfront.search.recipes.seed_training import SeedJob, SeedResult, train_seed
from bitfront.search.recipes.training_progress import Lines, TrainingView
from bitfront.trainables.data import dataset_title, missing_test
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.task import Task
from bitfront.trainables.text_files import whole_path
from bitfront.trainables.training.distillation import check_teacher
from bitfront.trainables.training.parts import has_test_part
from bitfront.trainables.training.pretraining import check_checkpoint

Note = Callable[[str], None]


@dataclass
class FinalResult:
    """The result of a final training over its seeds."""

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


def check_test_part(recipe: Recipe, data_dir: str | None) -> None:
    """Raise where the dataset has no test part: before hours of training, not after."""
    task = recipe.spec.task
    missing = missing_test(task.dataset, data_dir or task.data_dir)
    if missing is not None and has_test_part(task):
        raise UserError(f"final training needs a test part: {missing}")


def train_recipe(
    recipe: Recipe,
    out: Path,
    data_dir: str | None = None,
    gpus: float = 1.0,
    threads: int | None = None,
    note: Note = lambda _text: None,
    pretrained: Path | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: TrainingView | None = None,
) -> FinalResult:
    """Train every seed on train + validation data, test it, and write its packed network to `out`.
    A seed that was interrupted continues after its last epoch; one that is finished is not trained
    again; a folder with the training of another recipe is refused. Pretraining in full precision
    uses train + validation data too, and its networks are kept in `pretrained`. With `workers`,
    that many Ray workers train each seed together. `progress` shows the epochs; without it each is
    a line passed to `note`."""
    task = recipe.spec.task.model_copy(update={"epochs": recipe.final.epochs})
    _check_start(task, note)
    if data_dir is not None:  # workers run in folders of their own
        data_dir = str(whole_path(data_dir))
    data_dir = data_dir or task.data_dir
    pretrained = pretrained or out / "pretrained"

    def job_of(seed: int) -> SeedJob:
        spec = final_spec(recipe, seed)
        return SeedJob(recipe, spec, str(out), data_dir, str(pretrained), threads)

    with claimed(out, recipe):
        jobs = [job_of(seed) for seed in dict.fromkeys(recipe.final.seeds)]
        waiting = _unfinished(jobs, note)
        view = progress or Lines(note)
        view.start(recipe, len(waiting))
        try:
            if workers is None:
                for job in waiting:
                    train_seed(job, gpus, view)
            else:
                # Imports Ray, which training here does without.
                from bitfront.search.recipes.shared_training import train_shared

                train_shared(waiting, workers, address, gpus, view)
        finally:
            view.stop()
        done = [result for job in jobs if (result := job.finished()) is not None]
        # Seeds of this recipe that were trained before and not asked for now are results too.
        asked = {job.spec.seed for job in jobs}
        more = [job_of(seed).finished() for seed in trained_seeds(out) if seed not in asked]
        every = sorted([*done, *(m for m in more if m is not None)], key=lambda s: s.seed)
        _write_result(out / RESULT, _result(recipe, every, done[0].examples))
    return _result(recipe, done, done[0].examples)


def _check_start(task: Task, note: Note) -> None:
    """Check what the training starts from, and say what that is and what is missing."""
    if not has_test_part(task):
        note(
            f"{dataset_title(task.dataset)} has no test part: the validation part is left out of "
            "training and reported, although the search chose this network by it"
        )
    check_teacher(task)
    if task.pretrain.checkpoint is not None:
        note(check_checkpoint(task).text())
    if task.pretrain.epochs:
        note(f"starts from {task.pretrain.epochs} epochs in full precision, trained once")


def _unfinished(jobs: list[SeedJob], note: Note) -> list[SeedJob]:
    """The jobs that are still to be trained; `note` gets a line for every other one."""
    waiting = []
    for job in jobs:
        result, quality = job.finished(), job.recipe.quality
        if result is None:
            check_free(job.recipe, Path(job.out), job.spec.seed)
            waiting.append(job)
        else:
            reached = quality.text(result.metrics[job.tested])
            note(f"seed {job.spec.seed}: already trained, {reached} {job.recipe.part_in_words}")
    return waiting


def _result(recipe: Recipe, seeds: list[SeedResult], examples: int) -> FinalResult:
    tested = f"{recipe.tested_on}_{recipe.quality.bare}"
    return FinalResult(recipe.name, tested, recipe.final.epochs, examples, seeds)


def _write_result(file: Path, result: FinalResult) -> None:
    write_atomically(file, json.dumps(result.as_json(), indent=2))
