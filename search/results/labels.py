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


# The same where a search has one network.
ONE_NETWORK = "FLOPs, MixBin convention, % of FP"


OWN_SHARE = "flops_own_pct"


def metric_label(metric: Metric) -> str:
    return f"validation {metric.label}{', %' if metric.share else ''}"
