"""Snelson's one-dimensional regression data, read from its text files. Its test inputs have no
targets, so a fixed part of the training points is set aside as a test part."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bitfront.trainables.data.datasets import DATASETS, DatasetInfo
from bitfront.trainables.data.parts import stratified
from bitfront.trainables.errors import MissingDataError, UserError

if TYPE_CHECKING:
    import torch

FOLDER = "snelson"
TEST_SIZE = 20
# The seed that chooses the test points is part of the dataset.
_TEST_SEED = (0, 2)
# Mean and standard deviation of the 180 training targets; all targets are standardised with them.
TARGET_MEAN, TARGET_STD = -0.3599, 0.8494
_GET_HINT = (
    "download train_inputs and train_outputs of Snelson and Ghahramani's 1-D data to DIR/snelson"
)


def _read(test: bool, data_dir: Path | None) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    assert data_dir is not None
    where = data_dir / FOLDER
    try:
        x, y = (np.loadtxt(where / f"train_{name}", ndmin=1) for name in ("inputs", "outputs"))
    except (OSError, ValueError) as error:
        raise MissingDataError(
            f"dataset 'snelson' not found or damaged: looked for {where} ({error})",
            f"get it: {_GET_HINT.replace('DIR', str(data_dir))}",
        ) from None
    if len(x) != len(y) or len(x) <= TEST_SIZE:
        raise UserError(f"dataset 'snelson' in {where}: {len(x)} inputs but {len(y)} targets")
    chosen = np.zeros(len(y), dtype=bool)
    chosen[stratified(np.zeros(len(y), dtype=int), TEST_SIZE, _TEST_SEED)] = True
    if not test:
        chosen = ~chosen
    targets = (y[chosen] - TARGET_MEAN) / TARGET_STD
    return (
        torch.as_tensor(x[chosen, None], dtype=torch.float32),
        torch.as_tensor(targets, dtype=torch.float32),
    )


DATASETS.add(
    "snelson",
    DatasetInfo(
        name="snelson",
        shape=(1,),
        classes=1,
        train_size=180,
        test_size=TEST_SIZE,
        mean=(2.9620,),
        std=(1.6820,),
        source="One number from one number, 200 points (Snelson and Ghahramani, 2006).",
        get_hint=_GET_HINT,
        read_train=partial(_read, False),
        read_test=partial(_read, True),
        folder=FOLDER,
        kind="regression",
    ),
)
