"""Datasets by name, their parts and batches of them; one module per family. New files in this
folder are imported automatically. Listing datasets is cheap: torch, torchvision and scikit-learn
are imported when data is loaded."""

from bitfront.trainables.data.augmentations import AUGMENTATIONS
from bitfront.trainables.data.batches import Batches, Visit, in_order
from bitfront.trainables.data.datasets import (
    DATASETS,
    DatasetInfo,
    PartName,
    lend,
    load_search,
    load_test,
    load_train,
    missing_test,
    pixel_statistics,
    stored_arrays,
    train_examples,
)
from bitfront.trainables.data.own.declaration import dataset_title
from bitfront.trainables.data.parts import Arrays, Part, TaskRow, split
from bitfront.trainables.data.streams import Streamed

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "Arrays",
    "Batches",
    "DatasetInfo",
    "Part",
    "PartName",
    "Streamed",
    "TaskRow",
    "Visit",
    "dataset_title",
    "in_order",
    "lend",
    "load_search",
    "load_test",
    "load_train",
    "missing_test",
    "pixel_statistics",
    "split",
    "stored_arrays",
    "train_examples",
]
