"""Siamese trackers: one backbone embeds an exemplar and a search region, their correlation says
where the target is (methods.md 4.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.errors import UserError
from bitfront.trainables.models.base import MODELS, ModelInfo, Shape
from bitfront.trainables.models.cresnet import UNIT
from bitfront.trainables.models.mlp import ACTIVATION
from bitfront.trainables.parameters import Int, Param

if TYPE_CHECKING:
    from torch import nn

SMALLEST = 31


def _build(
    shape: Shape, classes: int, width: int, blocks: int, activation: str, unit: str
) -> nn.Module:
    if len(shape) != 3 or min(shape[1:]) < SMALLEST:
        raise UserError(
            f"model.name: siamfc takes images of {SMALLEST} pixels or more, not {shape}"
        )
    from bitfront.trainables.models.siamese import SiamFC

    return SiamFC(shape, width, blocks, activation, unit)


MODELS.add(
    "siamfc",
    ModelInfo(
        name="siamfc",
        doc="SiamFC on the stem and the first three stages of a ResNet, total stride 8 (4 for "
        "search regions below 128 pixels); costs are of one search region: the exemplar is "
        "embedded once a sequence, the correlation has no weights",
        build=_build,
        params={
            "width": Param(64, Int(1, 1024), "channels of the first stage", search=Int(8, 64)),
            "blocks": Param(2, Int(1, 16), "a stage, of two convolutions each", search=Int(1, 2)),
            "activation": ACTIVATION,
            "unit": UNIT,
        },
        kind="tracking",
    ),
)
