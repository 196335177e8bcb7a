"""The result of a final training as a table and a sentence, and the files it is deployed as. The
training itself is in `bitfront.search.recipes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.search.recipes.final_training import FinalResult
from bitfront.search.recipes.recipe import Recipe
from bitfront.terminal.next_commands import after_training
from bitfront.terminal.tables import count, filled, several, short, table

if TYPE_CHECKING:
    from bitfront.trainables.runtime.exports.deployment import Deployed
    from bitfront.trainables.runtime.exports.examples import Examples


def result_text(recipe: Recipe, result: FinalResult) -> str:
    """A row per seed, and the mean over them beside what the search measured."""
    quality = recipe.quality
    measured = {name for seed in result.seeds for name in seed.metrics}
    part, words = recipe.tested_on, recipe.part_in_words
    shown = [m for m in recipe.kind.metrics if m.share or m == quality]
    metrics = [m for m in shown if f"{part}_{m.bare}" in measured]
    rows = [
        [
            str(s.seed),
            *(m.number(s.metrics[f"{part}_{m.bare}"]) for m in metrics),
            count(s.bytes),
            s.checkpoint,
        ]
        for s in result.seeds
    ]
    heads = ["seed", *(f"{words} {short(m)}" for m in metrics), "bytes", "packed checkpoint"]
    spread = f" ± {quality.number(result.spread)}" if len(result.seeds) > 1 else ""
    expected = quality.text(recipe.expected.get(quality.name))
    known = f" (validation {quality.label} in the search: {expected})" if expected != "-" else ""
    epochs = several(result.epochs, "epoch")
    if recipe.final.keep == "best":
        epochs = f"the best of {epochs}"
    sentence = (
        f"{words} {quality.label} {quality.number(result.mean)}{spread}{quality.unit} over "
        f"{several(len(result.seeds), 'seed')}, {epochs} on "
        f"{result.train_examples} examples{known}"
    )
    return "\n".join(["", table(heads, rows), "", filled(sentence), "", after_training(result)])


def examples_text(examples: Examples, dataset: str) -> str:
    """On what deployed files are compared with torch."""
    where = f" of {dataset}" if not examples.why else f" ({examples.why})"
    return filled(f"compared with torch on {len(examples.x)} {examples.what}{where}")


def deployed_text(made: Deployed) -> str:
    """A file that was written, and how its outputs compare with those of torch."""
    head = f"{made.path}: {count(made.bytes)} bytes, {made.about}"
    if made.unchecked:
        return "\n".join([filled(head), filled(f"  not compared: {made.unchecked}")])
    same = f"  same predictions, largest difference of an output {made.difference:.3g}"
    if made.undecided:
        same += (
            f"; {made.undecided} of {made.examples} classes are decided by rounding, in torch too"
        )
    return "\n".join([filled(head), filled(same)])
