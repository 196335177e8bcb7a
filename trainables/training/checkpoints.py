"""The state of a training run on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bitfront.trainables import checksums
from bitfront.trainables.errors import first_line
from bitfront.trainables.files import replacing
from bitfront.trainables.training.loop import Training

if TYPE_CHECKING:
    pass


def save_state(training: Training, path: Path) -> None:
    """Write the state so that a crash at any moment leaves the old file or the new one."""
    # Beside it under another name: the worker of a driver that was killed may still be writing.
    with replacing(path) as part:
        torch.save(training.state_dict(), part)
        checksums.seal(part)


def load_state(
    training: Training, path: Path, damaged: Callable[[str], None] = lambda reason: None
) -> bool:
    """Continue from `path` if a usable state is there; a damaged one means starting over, and
    `damaged` hears of it."""
    reason = "it is another network's"
    try:
        checksums.check(path)
        state = torch.load(path, map_location=training.device, weights_only=True)
        # Looked at before anything is copied: a state that half fits would leave a mixture.
        fits = _shapes(state["model"]) == _shapes(training.model.state_dict())
    except FileNotFoundError:
        return False
    except Exception as error:  # torch raises a dozen types for a truncated or foreign file
        fits, reason = False, first_line(error)[:200]
    if not fits:
        path.unlink(missing_ok=True)
        damaged(f"its checkpoint was damaged ({reason}): it began again")
        return False
    training.load_state_dict(state)
    return True


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
