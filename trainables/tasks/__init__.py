"""Kinds of task, one file each: what the network's output is compared with and what is measured. A
dataset declares its kind. A new file in this folder is found by itself; listing kinds does not
import torch."""

from bitfront.trainables.tasks.base import KINDS, Kind, kind_of, metric_names

__all__ = ["KINDS", "Kind", "kind_of", "metric_names"]
