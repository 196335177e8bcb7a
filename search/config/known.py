"""The names that objectives, limits and rows of a paper may use, each looked up where it is
declared: costs, metrics and attacks. Samplers are looked up in `checks.search`, since they know the
schema."""

from __future__ import annotations

from typing import get_args

from bitfront.spaces.space import OWN_SHARE
from bitfront.trainables.cost import CONVENTIONS
from bitfront.trainables.errors import UserError
from bitfront.trainables.task import Evaluation
from bitfront.trainables.tasks import KINDS, METRIC_NAMES, Kind, Metric, kind_of

ROBUST = "val_robust_"
"""what the name of robust accuracy under an attack begins with"""


def _cost_names() -> tuple[str, ...]:
    """The costs by convention, with the flops in percent beside the flops, and the parameters."""
    first, *others = CONVENTIONS
    return (first, f"{first}_pct", OWN_SHARE, *others, "parameters")


# `flops_pct` is of the dearest full-precision network of the space, `flops_own_pct` of the trial's.
COSTS = _cost_names()
METRICS = tuple(METRIC_NAMES)
"""of all kinds of tasks"""


def metrics_of(kind: Kind) -> tuple[str, ...]:
    """The names of the metrics that a kind of task has."""
    return tuple(metric.name for metric in kind.metrics)


def default_quality(dataset: str) -> Metric:
    """The metric that a search on the dataset optimizes unless it says otherwise. An unknown
    dataset is reported where the task is checked."""
    try:
        return kind_of(dataset).quality
    except UserError:
        return KINDS.get("classification").quality


def shares() -> set[str]:
    """The names of the metrics that are fractions in [0, 1]."""
    return {m.name for _, kind in KINDS.items() for m in kind.metrics if m.share}


def direction(objective: str) -> str:
    """Whether more ("max") or less ("min") of a metric or cost is better."""
    if objective in COSTS:
        return "min"
    known = [m for _, kind in KINDS.items() for m in kind.metrics if m.name == objective]
    return "max" if known and known[0].maximize else "min"


def attacks() -> tuple[str, ...]:
    """The attacks that robust accuracy can be measured under."""
    return get_args(Evaluation)
