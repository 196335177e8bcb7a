"""Writes the state of a training run to disk and reads it back. The content of the state is defined
by `loop.Training`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from bitfront.trainables import checksums
from bitfront.trainables.errors import first_line
from bitfront.trainables.files import replacing
from bitfront.trainables.training.run import Run


def save_state(run: Run, path: Path) -> None:
    """Write the state so that a crash at any moment leaves the old file or the new one."""
    # To a file of another name first, since the worker of a killed driver may still be writing.
    with replacing(path) as part:
        torch.save(run.state_dict(), part)
        checksums.seal(part)


def load_state(run: Run, path: Path, damaged: Callable[[str], None] = lambda _reason: None) -> bool:
    """Continue the run from `path` if a usable state is there; returns whether it was. A damaged
    state is deleted, `damaged` is called with a sentence about it, and the run starts over."""
    reason = "it is another network's"
    try:
        checksums.check(path)
        state = torch.load(path, map_location=run.device, weights_only=True)
        # Compared before anything is copied: a state that fits in part would leave a mixture.
        fits = _shapes(state["model"]) == _shapes(run.model.state_dict())
    except FileNotFoundError:
        return False
    except Exception as error:  # torch raises a dozen types for a truncated or foreign file
        fits, reason = False, first_line(error)[:200]
    if not fits:
        path.unlink(missing_ok=True)
        damaged(f"its checkpoint was damaged ({reason}): it began again")
        return False
    run.load_state_dict(state)
    return True


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
