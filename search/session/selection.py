"""Runs the selectors of a search before its first trial, where trials run; their results are kept
for all searches of a home. The algorithms are in `trainables/selectors`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bitfront.search.cluster.board import Board
from bitfront.search.config.schema import SearchConfig
from bitfront.search.durations import duration
from bitfront.search.ledger.folder import SearchFolder, pretrained_folder, selections_folder
from bitfront.search.pictures import NO_PICTURES, Pictures
from bitfront.search.session.progress import WORKERS_START, Line
from bitfront.spaces.space import Space, middle, recorded
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import dataset_title
from bitfront.trainables.files import write_atomically
from bitfront.trainables.methods import METHODS
from bitfront.trainables.own_code import shown
from bitfront.trainables.parameters import Domain
from bitfront.trainables.progress import report, reporting_to
from bitfront.trainables.selectors import Selection, SelectionSpec, select
from bitfront.trainables.selectors.base import flops_saved
from bitfront.trainables.selectors.selection import store, stored

Note = Callable[[str], None]


def needed(config: SearchConfig, space: Space) -> list[SelectionSpec]:
    """The specifications of the selectors that must train a network for this search, without
    duplicates."""
    seed = config.search.seed
    specs = [spec for using in space.selecting() for spec in using.specs(space, seed).values()]
    return list({spec.fingerprint(): spec for spec in specs}.values())


def settle(
    config: SearchConfig,
    space: Space,
    folder: SearchFolder,
    address: str | None,
    note: Note,
    line: Line | None = None,
    pictures: Pictures = NO_PICTURES,
    wanted: Collection[str] | None = None,
) -> Space:
    """The space with the results of all its selectors, which are written into the search's folder
    too. Selectors without a stored result run on Ray first, or those of them that are `wanted`;
    `line` shows their progress."""
    specs = needed(config, space)
    if not specs:
        return space.settled(select, config.search.seed)
    kept = selections_folder(folder.path.parent)
    lacking = [spec for spec in specs if stored(spec, kept) is None]
    missing = [spec for spec in lacking if wanted is None or spec.selector in wanted]
    if missing:
        for text in intentions(missing):
            note(text)
        for made in _selected_remotely(missing, config, folder, address, line):
            store(made, kept)
    done = {spec.fingerprint(): stored(spec, kept) for spec in specs}
    for selection in done.values():
        if selection is not None:
            note(selection.summary())
            write_selection(selection, folder.path, pictures)
    return space.settled(lambda spec: done[spec.fingerprint()], config.search.seed)


def start_points(space: Space) -> list[dict[str, Any]]:
    """The plans that a selector made for a search over free plans, as points of its space."""
    layers = [layer.name for layer in task_cost_table(space.task).plan_layers]
    planned = [m for m in space.method.values if METHODS.get(str(m)).levels != "F"]
    points = []
    for plan in space.start_plans:
        given = {f"plan.{name}": level for name, level in zip(layers, plan, strict=True)}

        def draw(name: str, domain: Domain, given: dict[str, str] = given) -> Any:
            if name == "method":
                return planned[0]
            return given[name] if name in given else middle(domain)

        points.append(recorded(space, draw))
    return points


def intentions(specs: Sequence[SelectionSpec]) -> list[str]:
    """Sentences about what will be trained."""
    return [
        f"{shown(spec.selector)}: trains on {dataset_title(spec.task.dataset)} "
        f"({spec.task.epochs} epochs per network) and "
        "scores its layers first; kept for the next time"
        for spec in specs
    ]


def _selected_remotely(
    specs: Sequence[SelectionSpec],
    config: SearchConfig,
    folder: SearchFolder,
    address: str | None,
    line: Line | None,
) -> list[Selection]:
    if line is not None:
        line.wait("starting Ray for the selectors")
    from bitfront.search.cluster.tuner import run_tasks

    pretrained = str(pretrained_folder(folder.path.parent))
    resources = config.resources
    board = Board(folder.identity)
    threads = max(1, int(resources.cpus))
    calls = [
        (spec.model_dump(mode="json"), pretrained, threads, resources.whole_gpus, board)
        for spec in specs
    ]
    watched = partial(_watch, board, line, len(specs)) if line is not None else None
    found = run_tasks(_select, calls, config, address, watched)
    return [Selection.model_validate(each) for each in found]


def _watch(board: Board, line: Line, count: int) -> None:
    started = time.monotonic()

    def text() -> str:
        told = "; ".join(board.read()) or WORKERS_START
        passed = duration(time.monotonic() - started)
        return f"{count} selector{'s' if count > 1 else ''} at work, {passed}: {told}"

    line.watch(text)


def _select(
    spec: dict[str, Any], pretrained: str, threads: int, gpus: float, board: Board
) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    name = shown(str(spec["selector"]))
    with reporting_to(lambda text: board.write(name, f"{name}: {text}")):
        found = select(
            SelectionSpec.model_validate(spec), pretrained=Path(pretrained), gpus=gpus, note=report
        )
    board.erase(name)
    return found.model_dump(mode="json")


def selection_rows(selection: Selection) -> list[dict[str, Any]]:
    """A row per layer: its place in the order, its score, the flops that binarizing it saves."""
    places = {layer: place for place, layer in enumerate(selection.order, 1)}
    saved = flops_saved(task_cost_table(selection.spec.task), selection.spec.level)
    scores: Sequence[float | None] = selection.scores or [None] * len(selection.layers)
    return [
        {"layer": name, "place": places[i], "score": scores[i], "flops_pct": saved[i]}
        for i, name in enumerate(selection.layers)
    ]


def write_selection(selection: Selection, folder: Path, pictures: Pictures = NO_PICTURES) -> None:
    """Write selection-NAME-HASH.json into the search's folder, and what `pictures` makes of it."""
    spec = selection.spec
    stem = f"selection-{spec.file_name}-{spec.fingerprint()[:6]}"
    if (folder / f"{stem}.png").exists():
        return
    rows = selection_rows(selection)
    title = (
        shown(f"{spec.selector}: {spec.task.model.name}")
        + f" on {dataset_title(spec.task.dataset)}"
    )
    write_atomically(folder / f"{stem}.json", selection.model_dump_json(indent=1))
    pictures.of_selection(rows, title, selection.score, folder / stem)
