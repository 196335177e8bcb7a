"""The labels of metrics and costs on axes and in tables. Their names in a YAML are declared in
`bitfront.trainables`."""

from __future__ import annotations

from bitfront.trainables.costs import cost_labels
from bitfront.trainables.metrics import Metric

COST_LABELS = cost_labels()
# Of `flops_pct`, where all trials of a search have the same network.
ONE_NETWORK = "FLOPs, MixBin convention, % of FP"
# The cost in percent of the trial's own network in full precision.
OWN_SHARE = "flops_own_pct"


def metric_label(metric: Metric) -> str:
    """The label of a metric on an axis, with its unit."""
    return f"validation {metric.label}{', %' if metric.share else ''}"
