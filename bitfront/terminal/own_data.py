"""What data of the user's own look like, in a few lines: shape, range, classes and the number of
examples of every part. Printed before the first trial, by `validate` and by `datasets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bitfront.terminal.tables import filled, several
from bitfront.trainables.data import DATASETS, dataset_title, missing_test, train_examples
from bitfront.trainables.data.folders import FLAT, TEST_SHARE
from bitfront.trainables.data.own.declaration import Declared
from bitfront.trainables.data.own.look import Look, key_of, look
from bitfront.trainables.task import Task


def look_at(name: str) -> Look | None:
    """The look at data of the user's own; None for other datasets. It was taken when the name was
    settled."""
    return None if DATASETS.get(name).own is None else look(key_of(name))


def data_text(task: Task) -> str:
    """What the data of a task look like; '' for datasets that `bitfront datasets` describes."""
    found = look_at(task.dataset)
    if found is not None:
        return "\n".join(look_lines(found, task.val_fraction))
    info = DATASETS.get(task.dataset)
    if info.count_train is None or info.kind != "classification":
        return ""
    count = train_examples(task.dataset, task.data_dir)
    test = "no test part" if missing_test(task.dataset, task.data_dir) else "a test part"
    if task.dataset.endswith(f":{FLAT}"):
        test = f"{TEST_SHARE:.0%} of all images set aside for the test (there is no folder train)"
    return (
        f"data {task.dataset}: images of {_extents(info.shape)}, "
        f"{info.classes} classes\n"
        f"  {count or 0:,} training examples, {_split(task.val_fraction)}, {test}"
    )


def tell(task: Task, say: Callable[[str], None]) -> None:
    """Say what the data of a task look like, before its first trial."""
    text = data_text(task)
    if text:
        say("\n".join(map(filled, text.split("\n"))))


def look_lines(found: Look, val_fraction: float) -> list[str]:
    """Two lines: what an example looks like, and how many there are."""
    declared = found.declared
    low, high = (_number(end, found) for end in (found.low, found.high))
    return [
        f"data {dataset_title(found.name)}: x {_extents(declared.shape)} from {low} to {high}"
        f"{_treatment(declared)}; y {_targets(found)}",
        f"  {_counts(declared, val_fraction)}",
    ]


def look_json(found: Look) -> dict[str, Any]:
    """The look as `bitfront datasets NAME --json` prints it."""
    declared = found.declared
    return {
        "name": found.name,
        "shape": list(declared.shape),
        "kind": declared.kind,
        "outputs": declared.outputs,
        "integers": declared.integers,
        "low": found.low,
        "high": found.high,
        "class_counts": list(found.counts),
        "sizes": dict(zip(("train", "val", "test"), declared.sizes or (), strict=False)),
        "notes": list(found.notes),
    }


def _extents(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _number(value: float, found: Look) -> str:
    """An end of the range; 0 for a number that is nearly 0."""
    near = abs(value) < 1e-4 * max(abs(found.low), abs(found.high))
    return "0" if near else f"{value:.4g}"


def _treatment(declared: Declared) -> str:
    if declared.mean:
        return " (pixels, normalised by their mean and deviation)"
    read = "read for every batch, each time different" if declared.random else ""
    read = read or ("read for every batch" if declared.each else "")
    said = ["integers"] if declared.integers else []
    said += [read] if read else []
    return f" ({', '.join(said)})" if said else ""


def _targets(found: Look) -> str:
    declared = found.declared
    if declared.target == "classes":
        low, high = min(found.counts), max(found.counts)
        each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        words = f"{declared.outputs} classes of {each} training examples"
    elif declared.target == "regression":
        number = "a number" if declared.outputs == 1 else f"{declared.outputs} numbers"
        words = f"{number}, deviation {declared.spread:.4g}"
    else:
        words = f"for {several(declared.outputs, 'output')}"
    own = [f"{m.name} ({'max' if m.maximize else 'min'})" for m in declared.metrics]
    own += ["a loss"] if declared.own_loss else []
    return words + (f"; of your own: {', '.join(own)}" if own else "")


def _split(val_fraction: float) -> str:
    return f"{val_fraction:.0%} of them for validation"


def _counts(declared: Declared, val_fraction: float) -> str:
    train, val, test = declared.sizes or (0, 0, 0)
    validation = f"{val:,} for validation" if val else _split(val_fraction)
    tested = f"{test:,} for the test" if test else "no test part"
    return f"{train:,} training examples, {validation}, {tested}"
