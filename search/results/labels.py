"""What metrics and costs are called on axes and in tables."""

from __future__ import annotations

from bitfront.trainables.tasks import Metric

COST_LABELS = {
    "flops": "FLOPs, MixBin convention",
    "flops_pct": "FLOPs, MixBin convention, % of the dearest FP network",
    "flops_own_pct": "FLOPs, MixBin convention, % of the same network in FP",
    "ops64": "OPs, Bi-Real convention (binary / 64)",
    "bops": "bit operations",
    "bytes": "bytes of the packed checkpoint",
    "parameters": "parameters",
}
# Of `flops_pct`, where all trials of a search have the same network.
ONE_NETWORK = "FLOPs, MixBin convention, % of FP"
# The cost in percent of the trial's own network in full precision.
OWN_SHARE = "flops_own_pct"


def metric_label(metric: Metric) -> str:
    """The label of a metric on an axis, with its unit."""
    return f"validation {metric.label}{', %' if metric.share else ''}"
