"""The network of docs/own.md, from nothing to a C file: its files and its commands as they stand on
that page."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import bitfront as bf
from bitfront.search.results.published import kept
from studies import finals, pages
from studies.searches import results
from studies.steps import STUDIES, Place, Step, Study
from testbed.pages import blocks

SEARCH = "stripes"
COMMANDS = {
    "run": "run search.yaml",
    "export": "export stripes --budget 70% --seeds 2",
    "train": "train recipe.yaml",
}


def written(place: Place) -> Path:
    """A folder with the files of the page."""
    folder = place.work("folder")
    page = (STUDIES.parent / "docs" / "own.md").read_text(encoding="utf-8")
    for block in blocks(page):
        if block.name:
            (folder / block.name).write_text(block.content, encoding="utf-8")
    return folder


def search(place: Place) -> None:
    place.bitfront(*COMMANDS["run"].split(), cwd=written(place))
    kept.write(bf.open(SEARCH, place.home).results, place.kept)


def final(place: Place) -> None:
    folder = written(place)
    place.bitfront(*COMMANDS["export"].split(), cwd=folder)
    place.bitfront(*COMMANDS["train"].split(), cwd=folder)
    found = json.loads((folder / "recipe-trained" / "result.json").read_text(encoding="utf-8"))
    for seed in found["seeds"]:
        del seed["checkpoint"]
    place.keep("final", found)


def deploy(place: Place) -> None:
    packed = written(place) / "recipe-trained" / "seed0.safetensors"
    place.keep("deployed", finals.files_of(place, packed.absolute()))


STEPS = (
    Step(SEARCH, f"`bitfront {COMMANDS['run']}`, 8 trials", 1, search),
    Step("final", f"`bitfront {COMMANDS['export']}` and `{COMMANDS['train']}`", 1, final),
    Step("deployed", "`bitfront deploy` as C and ONNX, `bitfront bench`", 1, deploy),
)


def front(place: Place) -> str:
    if missing := pages.missing(place, [SEARCH]):
        return missing
    rows = [
        {
            "FLOPs, %": f"{entry.costs['flops_pct']:.1f}",
            "validation accuracy, %": pages.percent(entry.metrics["val_accuracy"]),
            "method": entry.spec.method,
            "plan": f"`{entry.spec.plan}`",
            "width": str(entry.spec.task.model.params["width"]),
        }
        for entry in results(place, SEARCH).front
    ]
    return pages.table(rows)


def tested(place: Place) -> str:
    if missing := pages.missing(place, ["final"]):
        return missing
    found = place.read("final")
    accuracies = [seed["test_accuracy"] for seed in found["seeds"]]
    seeds = ", ".join(str(seed["seed"]) for seed in found["seeds"])
    each = ", ".join(pages.percent(a) for a in accuracies)
    mean = pages.percent(statistics.fmean(accuracies))
    size = found["seeds"][0]["bytes"] / 1000
    return (
        f"Test accuracy {mean} % (seeds {seeds}: {each}) after {found['epochs']} epochs on "
        f"{found['train_examples']:,} examples; {size:.1f} kB packed."
    )


def deployed(place: Place) -> str:
    if missing := pages.missing(place, ["deployed"]):
        return missing
    return finals.deployed_text(place.read("deployed"))


STUDY = Study("own-network", STEPS, {"front": front, "tested": tested, "deployed": deployed})
