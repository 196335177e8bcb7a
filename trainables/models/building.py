"""Networks as a task wants them: with their activations replaced, or on the meta device."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.models.activations import with_activations
from bitfront.trainables.models.base import Shape, build_model
from bitfront.trainables.models.own import counted_own
from bitfront.trainables.own_code import is_reference


def unreal_model(
    name: str, params: dict[str, Any], shape: Shape, classes: int, activations: str = "keep"
) -> nn.Module:
    """The network on the meta device, without memory or time; one of the user's own that cannot be
    made there is on the CPU."""
    if is_reference(name):
        return counted_own(name, params, shape, classes, activations).model
    try:
        with torch.device("meta"):
            model = build_model(name, params, shape, classes)
            return with_activations(model, activations, shape, name)
    except (RuntimeError, OverflowError) as error:  # more weights than can be counted
        reason = first_line(error)
        raise UserError(
            f"model {name} cannot be made for shape {shape} and {classes:,} classes: {reason}"
        ) from None
