"""Running a selector, and its result on disk."""

from __future__ import annotations

from pathlib import Path

from bitfront.trainables import checksums
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.files import write_atomically
from bitfront.trainables.selectors import scores
from bitfront.trainables.selectors.base import Note, Selection, SelectionSpec


def select(
    spec: SelectionSpec,
    selections: Path | None = None,
    pretrained: Path | None = None,
    gpus: float = 0.0,
    note: Note = lambda _text: None,
) -> Selection:
    """The selection of `spec`: read from the folder `selections` if it is there, else computed and
    stored. A trained selector first trains a network, which is kept in the folder `pretrained`."""
    found = stored(spec, selections) if selections is not None else None
    if found is not None:
        return found
    selector = spec.build()
    if selector.trained:
        selection = scores.run(selector, spec, pretrained, gpus, note)
    else:
        table = task_cost_table(spec.task)
        order = list(selector.order(table, spec.seed))
        layers = [layer.name for layer in table.plan_layers]
        selection = Selection(spec=spec, layers=layers, order=order)
    if selections is not None:
        store(selection, selections)
    return selection


def store(selection: Selection, folder: Path) -> Path:
    """Write the selection atomically; returns its file."""
    file = _file(selection.spec, folder)
    write_atomically(file, checksums.sealed_json(selection.model_dump(mode="json")))
    return file


def stored(spec: SelectionSpec, folder: Path) -> Selection | None:
    """The stored selection; None where there is none or its file is damaged."""
    try:
        content = checksums.opened_json(_file(spec, folder).read_text(encoding="utf-8"))
        return Selection.model_validate(content)
    except (FileNotFoundError, ValueError):
        return None


def _file(spec: SelectionSpec, folder: Path) -> Path:
    return folder / f"{spec.file_name}-{spec.fingerprint()}.json"
