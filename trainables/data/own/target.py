"""What is learned from data of the user's own: classes, numbers, or what their own loss says; with
the errors for targets that cannot be meant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data.own.declaration import OwnMetric, Target
from bitfront.trainables.data.own.opened import TRAIN, Goal, blame
from bitfront.trainables.data.own.reading import Source, check_labels
from bitfront.trainables.own_code import shown

if TYPE_CHECKING:
    import torch

# Whole numbers of at most so many values are taken for labels that were made floats by mistake.
FEW_VALUES = 20
# Examples that a metric is tried on.
TRIED = 2048


def decide(goal: Goal, targets: Mapping[str, torch.Tensor], dataset: str) -> tuple[Target, int]:
    """(what is learned, outputs of the network) for the targets of all parts."""
    y, source = targets[TRAIN], Source(dataset, TRAIN)
    for part, others in targets.items():
        if others.shape[1:] != y.shape[1:] or others.is_floating_point() != y.is_floating_point():
            here = Source(dataset, part)
            raise here.refuse(f"targets like {_like(others)}, those of train are like {_like(y)}")
    if y.dim() > 2 or (y.dim() == 2 and not y.is_floating_point()):
        return _several(goal, y, source)
    if y.dim() == 2:
        if goal.loss is not None:
            return "own", goal.outputs or y.shape[1]
        _refuse_one_hot(y, source)
        return "regression", y.shape[1]
    if not y.is_floating_point() and goal.kind != "regression":
        return "classes", _count_classes(goal, targets, dataset)
    if goal.kind == "classification":
        raise source.refuse(f"labels are floats such as {float(y[0]):g}", "make them y.long()")
    if goal.loss is not None and goal.outputs not in (None, 1):
        assert goal.outputs is not None
        return "own", goal.outputs
    values = y[:10_000].unique()
    few = len(values) <= min(FEW_VALUES, len(y) // 2)
    unsaid = goal.kind is None and goal.loss is None
    if unsaid and few and bool((values == values.round()).all()):
        raise source.refuse(
            f"targets are the floats {', '.join(f'{v:g}' for v in values[:4].tolist())}, ...: "
            "are they labels?",
            "for classification return integers (y.long()); for regression return a dict with "
            "'kind': 'regression'",
        )
    return "regression", 1


def _like(y: torch.Tensor) -> str:
    kind = "floats" if y.is_floating_point() else "integers"
    return f"{kind} of shape {tuple(y.shape[1:])}"


def _several(goal: Goal, y: torch.Tensor, source: Source) -> tuple[Target, int]:
    """Targets of several integers or several axes, which need a loss of their own."""
    if y.dim() == 2:
        _refuse_one_hot(y, source)
    if goal.loss is None:
        raise source.refuse(
            f"a target has the shape {'x'.join(map(str, y.shape[1:]))}",
            "such targets need a loss of your own: return a dict with 'loss' and 'metric'",
        )
    return "own", goal.outputs or (int(y.max()) + 1 if _are_maps(y) else int(y.shape[1]))


def _are_maps(y: torch.Tensor) -> bool:
    """Whether targets are a class for every pixel or step, and not a yes or no for every output."""
    return not y.is_floating_point() and (y.dim() > 2 or int(y.max()) > 1)


def _refuse_one_hot(y: torch.Tensor, source: Source) -> None:
    some = y[:4096]
    ones = ((some == 0) | (some == 1)).all() and (some.sum(1) == 1).all()
    if bool(ones) and y.shape[1] > 1:
        raise source.refuse("labels are one-hot", "a label is the number of its class: y.argmax(1)")


def _count_classes(goal: Goal, targets: Mapping[str, torch.Tensor], dataset: str) -> int:
    y, source = targets[TRAIN], Source(dataset, TRAIN)
    check_labels(y, goal.outputs, source)
    low, high = int(y.min()), int(y.max())
    classes = goal.outputs or high + 1
    if low == high and goal.outputs is None:
        raise source.refuse(f"every label is {low}", "a classification needs at least two classes")
    if low > 0 and goal.outputs is None:
        raise source.refuse(
            f"labels from {low} to {high}",
            f"classes are counted from 0: subtract {low}"
            + (", or name 'outputs' in a dict" if low > 1 else ""),
        )
    if classes > 100 and classes > 10 * len(y.unique()) and goal.outputs is None:
        raise source.refuse(
            f"labels up to {high}, but only {len(y.unique())} different ones",
            "classes are 0, 1, 2, ...: number them, or, if numbers are learned, make them floats",
        )
    for part, others in targets.items():
        check_labels(others, classes, Source(dataset, part))
    return classes


def aligned(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The output of a network in the shape of targets that are one number each."""
    single = y.is_floating_point() and y.dim() == 1 and output.dim() == 2 and output.shape[1] == 1
    return output.squeeze(1) if single else output


def at_chance(
    goal: Goal, y: torch.Tensor, target: Target, outputs: int, dataset: str
) -> tuple[tuple[OwnMetric, ...], float]:
    """The metrics of the user's own and the loss, with their values for outputs that are zero."""
    some = y[:TRIED].float() if target == "regression" else y[:TRIED]
    zeros = _zeros(some, target, outputs)

    def tried(function: Callable[[Any, Any], Any], what: str) -> float:
        try:
            with blame(dataset, f"an error when {what} is computed"):
                value = float(function(aligned(zeros, some), some))
        except Exception:
            if target != "own":
                raise
            return 0.0  # the network may have outputs of another shape
        return value if math.isfinite(value) else 0.0

    metrics = tuple(
        OwnMetric(name, goal.maximize[name], tried(function, f"the metric {name}"))
        for name, function in goal.metrics.items()
    )
    return metrics, 0.0 if goal.loss is None else tried(goal.loss, "the loss")


def _zeros(y: torch.Tensor, target: Target, outputs: int) -> torch.Tensor:
    import torch

    if target == "own" and y.dim() > 1 and not (y.dim() == 2 and outputs == y.shape[1]):
        return torch.zeros(y.shape if y.is_floating_point() else (len(y), outputs, *y.shape[1:]))
    return torch.zeros(len(y), outputs)


def spread_of(y: torch.Tensor) -> float:
    """The error of predicting the mean: the standard deviation of the targets."""
    spread = float(y.float().var(0, unbiased=False).mean().sqrt())
    return spread if spread > 0 else 1.0


def remarks(y: torch.Tensor, target: Target, dataset: str, outputs: int | None = None) -> list[str]:
    """What is probably not meant about the targets. `outputs`: of the network."""
    if target == "classes":
        missing = [str(label) for label, n in enumerate(y.bincount().tolist()) if n == 0]
        if not missing:
            return []
        some = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        return [
            f"{shown(dataset)}: no training example has the label {some}, but there are labels up "
            f"to {int(y.max())}: every one up to there is a class of the network"
        ]
    columns = y.shape[1] if y.dim() == 2 and not y.is_floating_point() else None
    if target == "own" and columns == outputs and not _are_maps(y):
        return [
            f"{shown(dataset)}: a target is {columns} integers, 0 or 1, and so the network has "
            f"{columns} outputs; for a class per step, name 'outputs': 2 beside the loss"
        ]
    if target != "regression":
        return []
    low, high = float(y.min()), float(y.max())
    if max(abs(low), abs(high)) <= 20:
        return []
    return [
        f"{shown(dataset)}: targets from {low:.4g} to {high:.4g} are learned as they are; networks "
        "learn faster from standardised ones, (y - mean) / std"
    ]
