"""Export: a point of a front as a recipe, written where it overwrites nothing. What a recipe holds
is in recipe.py."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from bitfront.search import kept_code
from bitfront.search.benched import MEASURED
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.environment import version_of
from bitfront.search.ledger.states import TrialState
from bitfront.search.recipes.recipe import (
    FinalSettings,
    Provenance,
    Recipe,
    load_recipe,
    save_recipe,
)
from bitfront.search.results.results import Results
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import places, references_in


def recipe_of(results: Results, entry: Entry, epochs: int | None, seeds: list[int]) -> Recipe:
    """The recipe that trains the network of a complete trial."""
    if entry.state != TrialState.COMPLETE:
        raise UserError(f"trial {entry.id} is {entry.state}: only a complete one can be exported")
    task = entry.spec.task.model_copy(update={"data_dir": None})
    quality = results.config.quality.name
    expected = {quality: entry.metrics[quality], **entry.costs, "seeds": entry.seeds}
    if entry.id in results.measured_ms:
        expected[MEASURED] = results.measured_ms[entry.id]
    if entry.own_spread is not None:
        expected[f"{quality}_std"] = entry.own_spread
    return Recipe(
        name=f"{results.config.name}-{entry.id}",
        spec=entry.spec.model_copy(update={"task": task}),
        final=FinalSettings(epochs=epochs or entry.spec.task.epochs, seeds=seeds),
        expected=expected,
        provenance=Provenance(
            search=results.config.name,
            trial=entry.id,
            number=entry.number,
            bitfront=version_of("bitfront"),
            exported=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        ),
        code=_code(results, entry),
    )


def _code(results: Results, entry: Entry) -> dict[str, str]:
    """Where the code of the user's own is that the network of a trial needs, by reference. It is
    not run."""
    wanted = references_in(entry.spec.model_dump(mode="json"))
    found = places.origins(wanted)
    kept_code.look(results.folder.path)
    return dict.fromkeys(wanted, "") | places.origins(wanted) | found


def may_save(recipe: Recipe, path: Path) -> bool:
    """Whether writing the recipe to `path` overwrites nothing but the same recipe."""
    if not path.exists():
        return True
    try:
        there = load_recipe(path)
    except UserError:
        return False
    return _lasting(there) == _lasting(recipe)


def _lasting(recipe: Recipe) -> dict[str, Any]:
    """The content of a recipe but for the time and the version it was written with."""
    content = recipe.model_dump(mode="json")
    content["code"] = sorted(content["code"])
    for key in ("exported", "bitfront"):
        (content["provenance"] or {}).pop(key, None)
    return content


def save_beside(recipe: Recipe, path: Path, force: bool = False) -> Path:
    """Write the recipe and return the file: `path`, or a numbered one beside it where `path` holds
    something else. A file that holds this recipe already is not written again: it may have comments
    by its reader."""
    names = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
    for file in itertools.chain([path], names):
        if force or not file.exists():
            save_recipe(recipe, file)
            return file
        if may_save(recipe, file):
            return file
    raise AssertionError  # there is always another number
