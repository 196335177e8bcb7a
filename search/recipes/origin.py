"""The search a recipe came from. Where its folder is in this home, final trainings are recorded in
it and in MLflow."""

from __future__ import annotations

import time
from pathlib import Path

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.recipes.final_training import FinalResult
from bitfront.search.recipes.finals import FinalTraining, note_finals
from bitfront.search.recipes.recipe import Recipe
from bitfront.search.results.stored import stored_config
from bitfront.search.tracking.extra_runs import deliver_extras
from bitfront.search.tracking.registered import register


def search_of(recipe: Recipe, root: Path) -> SearchFolder | None:
    """The search a recipe came from; None where that is not here."""
    if recipe.provenance is None:
        return None
    folder = SearchFolder(root / recipe.provenance.search)
    return folder if folder.exists else None


def note_result(
    recipe: Recipe, result: FinalResult, root: Path, registered: str | None = None
) -> str | None:
    """Record the final trainings of a recipe in the folder of its search, if it is here, and in
    MLflow; the first one also as a version of the model called `registered`. Returns what went
    wrong, if anything did."""
    origin, folder = recipe.provenance, search_of(recipe, root)
    if origin is None or folder is None:
        return None
    made = [
        FinalTraining(
            recipe=recipe.name,
            trial=origin.trial,
            method=recipe.spec.method,
            plan=recipe.spec.plan,
            seed=seed.seed,
            epochs=result.epochs,
            checkpoint=str(Path(seed.checkpoint).resolve()),
            seconds=seed.seconds,
            ended=time.time(),
            metrics=seed.metrics,
            rest=recipe.final.rest,
            keep=recipe.final.keep,
        )
        for seed in result.seeds
    ]
    note_finals(folder, made)
    config = stored_config(folder)
    problem = deliver_extras(config, folder) if config.tracking.enabled else None
    if problem is None and registered is not None:
        problem = register(config, folder, made[0].key, registered)
    return None if problem is None else f"MLflow did not take the final training: {problem}"
