"""Networks as a task wants them: with their activations replaced, or on the meta device."""

from __future__ import annotations

from typing import Any

from torch import nn

from bitfront.trainables.data import DATASETS
from bitfront.trainables.data.own.declaration import as_floats
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.models.activations import with_activations
from bitfront.trainables.models.base import Shape, build_model
from bitfront.trainables.models.own import counted_own, takes_integers
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.structure.meta import on_meta


def suited(dataset: str, name: str, params: dict[str, Any]) -> str:
    """The settled name of a dataset for a network: its integers reach it as integers if they pass
    through it, which only networks of the user's own are tried for, else as floats."""
    info = DATASETS.get(dataset)
    if info.own is None or not info.integers:
        return dataset
    if is_reference(name):
        given = (name, params, info.shape, info.classes, info.has_axes)
        if takes_integers(*given) or not _takes_floats(*given):
            return dataset
    return as_floats(dataset)


def _takes_floats(
    name: str, params: dict[str, Any], shape: Shape, classes: int, axes: bool
) -> bool:
    try:
        counted_own(name, params, shape, classes, integers=False, axes=axes)
    except UserError:
        return False
    return True


def unreal_model(
    name: str, params: dict[str, Any], shape: Shape, classes: int, activations: str = "keep"
) -> nn.Module:
    """The network on the meta device, without memory or time; one of the user's own that cannot be
    made there is on the CPU."""
    if is_reference(name):
        return counted_own(name, params, shape, classes, activations).model
    try:
        with on_meta():
            model = build_model(name, params, shape, classes)
            return with_activations(model, activations, shape, name)
    except (RuntimeError, OverflowError) as error:  # more weights than can be counted
        reason = first_line(error)
        raise UserError(
            f"model {name} cannot be made for shape {shape} and {classes:,} classes: {reason}"
        ) from None
