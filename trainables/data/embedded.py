"""Datasets that come with scikit-learn: real digits and the two moons, no download.
scikit-learn has no test part for them, so a fixed one is set aside here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bitfront.trainables.data.datasets import DATASETS, DatasetInfo
from bitfront.trainables.data.parts import stratified

if TYPE_CHECKING:
    import torch

_GET_HINT = "nothing to get: it comes with scikit-learn"

# The seed that chooses the test examples is part of the dataset: another seed is another dataset.
_TEST_SEED = (0, 2)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x.reshape(-1, 1, 8, 8) / 16.0, y


def _moons() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_moons

    x, y = make_moons(n_samples=1_000, noise=0.1, random_state=0)
    return x, y


def _read(
    make: Callable[[], tuple[np.ndarray, np.ndarray]],
    test_size: int,
    test: bool,
    _data_dir: Path | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    x, y = make()
    chosen = np.zeros(len(y), dtype=bool)
    chosen[stratified(y, test_size, _TEST_SEED)] = True
    if not test:
        chosen = ~chosen
    return (
        torch.as_tensor(x[chosen], dtype=torch.float32),
        torch.as_tensor(y[chosen], dtype=torch.int64),
    )


# mean and std are those of the training part.
DATASETS.add(
    "digits",
    DatasetInfo(
        name="digits",
        shape=(1, 8, 8),
        classes=10,
        train_size=1_438,
        test_size=359,
        mean=(0.3056,),
        std=(0.3761,),
        source="Handwritten digits, 8x8 grey (Alpaydin and Kaynak, 1998; scikit-learn).",
        get_hint=_GET_HINT,
        read_train=partial(_read, _digits, 359, False),
        read_test=partial(_read, _digits, 359, True),
        embedded=True,
        name_classes=lambda _data_dir: "0123456789",
    ),
)
DATASETS.add(
    "moons",
    DatasetInfo(
        name="moons",
        shape=(2,),
        classes=2,
        train_size=800,
        test_size=200,
        mean=(0.4960, 0.2483),
        std=(0.8765, 0.5026),
        source="Two interleaved half circles with noise 0.1 as in BayesBiNN, made by scikit-learn.",
        get_hint=_GET_HINT,
        read_train=partial(_read, _moons, 200, False),
        read_test=partial(_read, _moons, 200, True),
        embedded=True,
    ),
)
