"""Metrics of the user's own: a function of the outputs of the network and the targets, both over
the whole validation part, measured after every epoch.

    def f1(output, target):
        ...
        return value

Its name is `val_f1`. A metric that is to be small says so: `f1.maximize = False`, or by its mode in
`objectives`. `f1.ideal` and `f1.chance`, the best value and that of a network that has learned
nothing, place a front in its box; 1 and 0 when not given, for a metric to be small 0 and 1. With
`f1.share = True` it is shown in percent. All of it stands in the settled name, behind the hash:
looking at a search needs no code."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data import DatasetInfo, in_order
from bitfront.trainables.errors import UserError, quoted
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code import load_object, settle
from bitfront.trainables.own_code.entry_points import reference_of
from bitfront.trainables.own_code.loading import about, blamed
from bitfront.trainables.own_code.reference import called, is_reference, shown
from bitfront.trainables.tasks.base import Kind, kind_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.task import Task

EVALUATION_BATCH = 512
# Examples that a metric is tried on.
TRIED = 8
# Kinds of task whose network has an output for every target.
MEASURED = ("classification", "regression", "own")


class Measured(Kind):
    """A kind of task with further metrics, by their settled names."""

    def __init__(self, kind: Kind, own: tuple[str, ...]) -> None:
        self._kind = kind
        self._own = {declared(text)[0].name: text for text in own}
        self.name, self.networks = kind.name, kind.networks  # type: ignore[misc]
        self.metrics = (*kind.metrics, *(declared(text)[0] for text in own))

    def chance(self, metric: str, info: DatasetInfo) -> float:
        if metric in self._own:
            return declared(self._own[metric])[1]
        return self._kind.chance(metric, info)

    def loss(self, output: Tensor, y: Tensor, task: Task) -> Tensor:
        return self._kind.loss(output, y, task)

    def combine(self, outputs: Tensor, average: str) -> Tensor:
        return self._kind.combine(outputs, average)

    def evaluate(self, model: nn.Module, part: Any) -> dict[str, float]:
        """The metrics of the kind, and those of the user's own."""
        import torch

        found = self._kind.evaluate(model, part)
        with torch.no_grad():
            pairs = [(model(x), y) for x, y in in_order(part, EVALUATION_BATCH)]
        outputs, targets = (torch.cat(each) for each in zip(*pairs, strict=True))
        return found | {name: _value(text, outputs, targets) for name, text in self._own.items()}


def _value(text: str, outputs: Tensor, targets: Tensor) -> float:
    reference = text.partition(";")[0]
    function = load_object(reference)
    with blamed(reference, "cannot be measured"):
        value = float(function(outputs.clone(), targets.clone()))
    if not math.isfinite(value):
        with about(reference):
            raise UserError(f"the metric is {value}", "return a number for every network")
    return value


def try_metric(text: str, info: DatasetInfo) -> None:
    """Compute a metric for outputs that are zero, so that a UserError tells of its mistakes before
    anything is trained."""
    import torch

    outputs = torch.zeros(TRIED, info.classes)
    targets = torch.arange(TRIED) % info.classes
    if info.kind == "regression":
        targets = outputs.clone()
    reference = text.partition(";")[0]
    function = load_object(reference)
    with blamed(reference, "cannot be measured"):
        float(function(outputs, targets))


@lru_cache(maxsize=256)
def declared(text: str) -> tuple[Metric, float]:
    """(the metric, its value at chance) that a settled name declares."""
    reference, *words = text.split(";")
    if not is_reference(reference):
        raise UserError(f"{quoted(text)} is no metric", "write FILE.py:NAME, a function")
    given = dict(word.partition("=")[::2] for word in words)
    maximize = "min" not in given
    name = called(reference)
    try:
        ideal = float(given.get("ideal", 1.0 if maximize else 0.0))
        chance = float(given.get("chance", 0.0 if maximize else 1.0))
    except ValueError:
        raise UserError(f"{quoted(text)} is no metric") from None
    if not all(map(math.isfinite, (ideal, chance))) or (chance < ideal) is not maximize:
        best = "most" if maximize else "least"
        raise UserError(
            f"{shown(text)}: its ideal is {ideal:g} and its chance {chance:g}, but {best} is best",
            "set its ideal and its chance: f1.ideal = 1.0; f1.chance = 0.5",
        )
    return Metric(f"val_{name}", name, ideal, maximize, "share" in given), chance


def settled_metric(text: str, mode: str | None) -> str:
    """The settled name of a metric, with what its code declares. `mode`: its mode in `objectives`,
    where it is one."""
    if "@" in text:
        declared(text)
        settle(text.partition(";")[0])
        return text
    reference = text if is_reference(text) else reference_of("metric", text)
    if reference is None:
        raise UserError(f"{quoted(text)} is no metric", "write FILE.py:NAME, a function")
    reference = settle(reference)
    found = load_object(reference)
    if not callable(found):
        raise UserError(f"{shown(reference)} is no metric", "write def f1(output, target)")
    maximize = getattr(found, "maximize", mode != "min")
    words = ["max" if maximize else "min"]
    for key in ("ideal", "chance"):
        if hasattr(found, key):
            words.append(f"{key}={float(getattr(found, key))!r}")
    words += ["share"] if getattr(found, "share", False) is True else []
    name = ";".join((reference, *words))
    declared(name)
    return name


def kind_for(task: Task) -> Kind:
    """The kind of a task, which its dataset declares, with the metrics of the user's own."""
    return measured(kind_of(task.dataset), tuple(task.metrics))


@lru_cache(maxsize=64)
def measured(kind: Kind, own: tuple[str, ...]) -> Kind:
    """The kind with further metrics, which have names that are not taken."""
    if not own:
        return kind
    if kind.name not in MEASURED:
        raise UserError(f"metrics of your own are not for {kind.name}")
    names = [metric.name for metric in kind.metrics] + [declared(text)[0].name for text in own]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"there are two metrics {twice}", "give the function another name")
    return Measured(kind, own)
