"""The weights that a finished trial leaves to others, as bytes that say whether they are still what
was written. Who inherits from whom is decided by a search."""

from __future__ import annotations

import hashlib
import io

import torch
from torch import Tensor, nn

from bitfront.trainables.checksums import DamagedError
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.training.checkpoint_files import load_weights, weights_of
from bitfront.trainables.training.run import Run

DIGEST = hashlib.sha256().digest_size


def bequest(model: nn.Module) -> bytes:
    """The tensors of a network by their names without a plan, and a checksum."""
    content = io.BytesIO()
    torch.save(weights_of(model), content)
    return content.getvalue() + hashlib.sha256(content.getvalue()).digest()


def opened_bequest(content: bytes) -> dict[str, Tensor]:
    """The tensors again; DamagedError where they are not what was written."""
    data = content[:-DIGEST]
    if hashlib.sha256(data).digest() != content[-DIGEST:]:
        raise DamagedError("its checksum does not fit")
    found: dict[str, Tensor] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return found


def look_spec(spec: TrialSpec, epochs: int) -> TrialSpec:
    """The short training that a trial begins with where it inherits."""
    return spec.model_copy(update={"task": spec.task.model_copy(update={"epochs": epochs})})


def load_inherited(run: Run) -> bool:
    """Copy the weights that a run was given into its network; returns whether there are any. A
    layer that is binary here and was not there, or the other way round, begins with the same
    numbers."""
    if run.inherited is None:
        return False
    load_weights(run.model, run.inherited, "the weights that it inherits")
    run.inherited = None
    return True
