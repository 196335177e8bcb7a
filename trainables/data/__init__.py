"""Datasets by name, their parts in memory and batches of them; one module a family.
Listing them is cheap: torch, torchvision and scikit-learn are imported when data is loaded."""

from trainables.data import embedded, torchvision_sets
from trainables.data.batches import AUGMENTATIONS, Batches, in_order
from trainables.data.datasets import (
    DATASETS,
    Arrays,
    DatasetInfo,
    load_test,
    load_train,
    pixel_statistics,
    split,
)

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "Arrays",
    "Batches",
    "DatasetInfo",
    "embedded",
    "in_order",
    "load_test",
    "load_train",
    "pixel_statistics",
    "split",
    "torchvision_sets",
]
