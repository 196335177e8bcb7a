"""Builds the network of a model by name, really or on the meta device. torch is imported where it
is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.models.base import MODELS, REPLACEMENTS, Shape
from bitfront.trainables.own_code import is_reference

if TYPE_CHECKING:
    from torch import nn


def build_model(
    name: str, params: dict[str, Any], shape: Shape, classes: int, activations: str = "keep"
) -> nn.Module:
    """A freshly initialised network for inputs of `shape` (channels first), with `activations`."""
    info = MODELS.get(name)
    network = info.build(shape=shape, classes=classes, **info.resolve(params))
    return with_activations(network, activations, shape, name)


def with_activations(network: nn.Module, activations: str, shape: Shape, name: str) -> nn.Module:
    """The network with its activations replaced, in place, as `task.activations` says; as it is for
    the choices that are no replacements (`layers.treatments`)."""
    if activations in REPLACEMENTS:
        from bitfront.trainables.models.activations import replace_activations

        replace_activations(network, activations, shape, name)
    return network


def unreal_model(
    name: str, params: dict[str, Any], shape: Shape, classes: int, activations: str = "keep"
) -> nn.Module:
    """The network on the meta device, without memory or time; one of the user's own that cannot be
    made there is on the CPU."""
    if is_reference(name):
        from bitfront.trainables.models.own import counted_own

        return counted_own(name, params, shape, classes, activations).model
    import torch

    try:
        with torch.device("meta"):
            return build_model(name, params, shape, classes, activations)
    except (RuntimeError, OverflowError) as error:  # more weights than can be counted
        reason = first_line(error)
        raise UserError(
            f"model {name} cannot be made for shape {shape} and {classes:,} classes: {reason}"
        ) from None
