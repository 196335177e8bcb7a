"""Kinds of task, one file each: loss, evaluation and metrics. A dataset declares its kind. New
files in this folder are imported automatically; listing kinds does not import torch."""

from bitfront.trainables.tasks.base import KINDS, Kind, kind_of, metric_names
from bitfront.trainables.tasks.further import kind_for

__all__ = ["KINDS", "Kind", "kind_for", "kind_of", "metric_names"]
