"""CIFAR-style residual networks of depth 6n + 2 in the B2NN form: one shortcut a convolution
(methods.md 4.9, 4.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.errors import UserError
from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, check_image
from bitfront.trainables.models.mlp import ACTIVATION
from bitfront.trainables.parameters import Choice, Int, Param

if TYPE_CHECKING:
    from torch import nn


def _build(
    shape: Shape, classes: int, depth: int, width: int, activation: str, unit: str
) -> nn.Module:
    if (depth - 2) % 6:
        raise UserError(
            f"model.depth: a cresnet has 6n + 2 layers, {depth} is not of that form",
            f"nearest: {max(8, round((depth - 2) / 6) * 6 + 2)}",
        )
    check_image("cresnet", shape)
    from bitfront.trainables.models import networks

    blocks = [(depth - 2) // 6] * 3
    return networks.ResidualNetwork(shape, classes, blocks, width, "cifar", activation, unit)


UNIT = Param(
    "bi-real",
    Choice(("bi-real", "classic")),
    "one shortcut a convolution (bi-real) or one around every two (classic)",
)

MODELS.add(
    "cresnet",
    ModelInfo(
        name="cresnet",
        doc="CIFAR ResNet, depth 6n + 2, three stages of width, 2 width, 4 width; projection "
        "shortcuts; stem, 1x1 shortcuts and classifier stay in full precision",
        build=_build,
        params={
            "depth": Param(20, Int(8, 1202, step=6), "6n + 2", search=Choice((8, 14, 20))),
            "width": Param(16, Int(1, 1024), "channels of the first stage", search=Int(4, 32)),
            "activation": ACTIVATION,
            "unit": UNIT,
        },
    ),
)


def _build_20(shape: Shape, classes: int, activation: str, unit: str) -> nn.Module:
    return _build(shape, classes, depth=20, width=16, activation=activation, unit=unit)


MODELS.add(
    "cresnet20",
    ModelInfo(
        name="cresnet20",
        doc="cresnet of depth 20 and width 16: the CIFAR network of MixBin",
        build=_build_20,
        params={"activation": ACTIVATION, "unit": UNIT},
    ),
)
