"""The training and validation parts of a task's dataset, the only data that a search uses."""

from __future__ import annotations

from functools import lru_cache

from bitfront.trainables.data import (
    DATASETS,
    Part,
    load_search,
    missing_test,
    split,
)
from bitfront.trainables.task import Task


def search_data(task: Task) -> tuple[Part, Part]:
    """(training part, validation part) of the task. The test set is not loaded here."""
    return _search_data(
        task.dataset,
        task.data_dir,
        task.normalize,
        task.subset,
        task.val_fraction,
        task.split_seed,
    )


def has_test_part(task: Task) -> bool:
    """Whether final training is tested. Data of the user's own may have no test part; of others a
    missing one is an error."""
    own = DATASETS.get(task.dataset).own is not None
    return not own or missing_test(task.dataset, task.data_dir) is None


# A worker trains many trials on the same data; two entries cover a change of the task in between.
@lru_cache(maxsize=2)
def _search_data(
    dataset: str,
    data_dir: str | None,
    normalize: str,
    subset: int | None,
    val_fraction: float,
    seed: int,
) -> tuple[Part, Part]:
    train, validation = load_search(dataset, data_dir, normalize)
    if subset is not None and subset < len(train):
        train = train.take(subset, seed)
    return split(train, val_fraction, seed) if validation is None else (train, validation)
