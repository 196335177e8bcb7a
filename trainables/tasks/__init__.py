"""Kinds of task, one file each: what the network's output is held against and what is measured.
A dataset declares its kind. Importing this package registers them all, without torch."""

from bitfront.trainables.tasks import classification, continual, regression, tracking
from bitfront.trainables.tasks.base import KINDS, METRIC_NAMES, Kind, Metric, kind_of

__all__ = [
    "KINDS",
    "METRIC_NAMES",
    "Kind",
    "Metric",
    "classification",
    "continual",
    "kind_of",
    "regression",
    "tracking",
]
