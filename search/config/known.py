"""The names that objectives, limits and rows of a paper may use, each looked up where it is
declared: costs, metrics, attacks and samplers."""

from __future__ import annotations

from collections.abc import Sequence

from bitfront.search.samplers.registry import SAMPLERS
from bitfront.trainables.attacks import EVALUATION_ATTACKS
from bitfront.trainables.costs import cost_names
from bitfront.trainables.errors import UserError
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code.reference import called, is_reference
from bitfront.trainables.tasks import KINDS, Kind, kind_of, metric_names

# `flops_pct` is of the dearest full-precision network of the space, `flops_own_pct` of the trial's.
COSTS = cost_names()
METRICS = metric_names()
"""of all kinds of tasks"""


def metrics_of(kind: Kind) -> tuple[str, ...]:
    """The names of the metrics that a kind of task has."""
    return tuple(metric.name for metric in kind.metrics)


def printable_metrics(kind: Kind) -> tuple[str, ...]:
    """The names of the numbers that a row of a paper may have."""
    return (*metrics_of(kind), *(metric.name for metric in kind.reported))


def default_quality(dataset: str) -> Metric:
    """The metric that a search on the dataset optimizes unless it says otherwise. An unknown
    dataset is reported where the task is checked."""
    try:
        return kind_of(dataset).quality
    except UserError:
        return KINDS.get("classification").quality


def default_objectives(dataset: str) -> dict[str, str]:
    """The objectives of a search on the dataset that names none."""
    quality = default_quality(dataset)
    return {quality.name: "max" if quality.maximize else "min", "flops": "min"}


def shares() -> set[str]:
    """The names of the metrics that are fractions in [0, 1]."""
    kinds = [kind for _, kind in KINDS.items()]
    return {m.name for kind in kinds for m in (*kind.metrics, *kind.reported) if m.share}


def direction(objective: str, kind: Kind | None = None) -> str:
    """Whether more ("max") or less ("min") of a metric or cost is better. Metrics of the user's own
    are known to their `kind` only."""
    if is_cost(objective):
        return "min"
    kinds = [*([kind] if kind is not None else []), *(each for _, each in KINDS.items())]
    known = [m for each in kinds for m in each.metrics if m.name == objective]
    return "max" if known and known[0].maximize else "min"


def is_cost(objective: str) -> bool:
    """Whether an objective or limit of this name is a cost: names of metrics begin with `val_`."""
    return not objective.startswith("val_")


def names_of_costs(own: Sequence[str]) -> tuple[str, ...]:
    """The names of all costs; `own`: the references to those of the user's own."""
    return (*COSTS, *(called(text) for text in own))


def attacks() -> dict[str, str]:
    """The attacks that robust accuracy can be measured under, by the name of the metric."""
    return {attack.metric: name for name, attack in EVALUATION_ATTACKS.items()}


def measured_at_end() -> set[str]:
    """The names of the metrics that are measured after the last epoch only."""
    return {attack.metric for _, attack in EVALUATION_ATTACKS.items() if not attack.every_epoch}


def samplers() -> list[str]:
    """The names of all samplers."""
    return SAMPLERS.names()


def is_sampler(name: str) -> bool:
    """Whether this is the name of a sampler, or of code of the user's own."""
    return name in SAMPLERS


def adds_layer_costs(sampler: str) -> bool:
    """Whether a sampler takes the cost of a plan for the sum of the costs of its layers."""
    return SAMPLERS.get(sampler).adds_layer_costs


def believes(sampler: str) -> bool:
    """Whether the priors of a space steer a sampler."""
    return SAMPLERS.get(sampler).believes


def foresees(sampler: str) -> bool:
    """Whether a sampler says what the next trials may add to the front; one of the user's own is
    not loaded for it, and does not."""
    return not is_reference(sampler) and SAMPLERS.get(sampler).foresees
