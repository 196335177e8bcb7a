"""Steps after a search: a point trained to its end and tested, one seed a step; a trained network
deployed and benched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bitfront.search.config.settle import IN_DATA
from bitfront.search.ledger.entry import Entry
from bitfront.search.recipes.export import recipe_of, save_beside
from bitfront.search.recipes.recipe import Recipe
from bitfront.search.results.results import Results
from bitfront.trainables.text_files import whole_path
from studies.pages import table
from studies.steps import Place, Step

Chosen = Callable[[Place], tuple[Results, Entry]]
"""the point that is trained, by what the steps before have kept"""


def step_of(name: str, seed: int) -> str:
    return f"final-{name}-seed{seed}"


def trained(
    name: str, chosen: Chosen, seed: int, epochs: int, minutes: float, repeats: bool = False
) -> Step:
    """A point trained on all training data with one seed, and tested."""

    def run(place: Place) -> None:
        results, entry = chosen(place)
        recipe = _found(recipe_of(results, entry, 1 if place.rehearsal else epochs, [seed]))
        work = place.work(f"final-{name}-seed{seed}")
        path = save_beside(recipe, work / "recipe.yaml")
        place.bitfront("train", path, "--threads", 1, "--quiet", "-o", work / "trained")
        found = json.loads((work / "trained" / "result.json").read_text(encoding="utf-8"))
        kept = {
            "search": results.config.name,
            "trial": entry.id,
            "method": entry.spec.method,
            "plan": entry.spec.plan,
            "flops_pct": entry.costs["flops_pct"],
            "val_accuracy": entry.metrics["val_accuracy"],
            "searched_seeds": entry.seeds,
            "epochs": found["epochs"],
            "examples": found["train_examples"],
            **{key: value for key, value in found["seeds"][0].items() if key != "checkpoint"},
        }
        place.keep(step_of(name, seed), kept)

    what = f"final training of {name}, {epochs} epochs, seed {seed}"
    return Step(step_of(name, seed), what, minutes, run, alone=False, repeats=repeats)


def _found(recipe: Recipe) -> Recipe:
    """The recipe with its checkpoint in the data directory of this machine."""
    task = recipe.spec.task
    checkpoint = task.pretrain.checkpoint
    if checkpoint is None or not checkpoint.startswith(IN_DATA):
        return recipe
    path = whole_path(os.environ.get("BITFRONT_DATA", ".")) / checkpoint.removeprefix(IN_DATA)
    pretrain = task.pretrain.model_copy(update={"checkpoint": str(path)})
    task = task.model_copy(update={"pretrain": pretrain})
    spec = recipe.spec.model_copy(update={"task": task})
    return recipe.model_copy(update={"spec": spec})


def deployed(name: str, chosen: Chosen, seed: int, minutes: float) -> Step:
    """The network of a final training as a C file and as ONNX, compared with torch, and its
    speed."""

    def run(place: Place) -> None:
        work = place.work(step_of(name, seed)) / "trained"
        packed = work / f"seed{seed}.safetensors"
        if not packed.exists():  # trained in another home
            trained(name, chosen, seed, int(place.read(step_of(name, seed))["epochs"]), 0).run(
                place
            )
        place.keep("deployed", {"network": step_of(name, seed), **files_of(place, packed)})

    return Step("deployed", f"{name} as C and ONNX, and its speed", minutes, run)


def files_of(place: Place, packed: Path) -> dict[str, Any]:
    """What `bitfront deploy` and `bitfront bench` say of a packed network, without its places."""
    work = packed.parent
    written = json.loads(
        place.bitfront(
            "deploy", packed, "--c", work / "net-c", "--onnx", work / "net.onnx", "--force",
            "--json", asked=True,
        )
    )  # fmt: skip
    speed = json.loads(place.bitfront("bench", packed, "--json", asked=True))
    files = [{k: v for k, v in each.items() if k != "path"} for each in written["files"]]
    return {"packed_bytes": packed.stat().st_size, "files": files, "bench": speed}


def deployed_text(kept: dict[str, Any]) -> str:
    """What became of a trained network: its files, their agreement with torch, its speed."""
    rows = [
        {
            "file": each["format"],
            "kB": f"{each['bytes'] / 1000:.1f}",
            "compared on": str(each["examples"]),
            "largest difference of an output": _difference(each["largest_difference"]),
        }
        for each in kept["files"]
    ]
    speed = kept["bench"]
    times = ", ".join(f"{name} {ms:.3f} ms" for name, ms in speed["milliseconds"].items())
    at = f"batch {speed['batch']}, {speed['threads']} thread, {speed['cpu']}"
    return f"{table(rows)}\n\nPacked: {kept['packed_bytes'] / 1000:.1f} kB. {times} ({at})."


def _difference(value: float | None) -> str:
    return "not run" if value is None else f"{value:.1e}"


def chance(ours: list[float], theirs: list[float]) -> float:
    """The probability of such a difference where there is none, by Welch's t-test."""
    from scipy.stats import ttest_ind  # slow to import

    return float(ttest_ind(ours, theirs, equal_var=False).pvalue)
