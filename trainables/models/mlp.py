"""Multilayer perceptrons with batch norm, for any input shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape
from bitfront.trainables.parameters import Choice, Float, Int, Param

if TYPE_CHECKING:
    from torch import nn

ACTIVATION = Param(
    "binrelu",
    Choice(("binrelu", "relu", "hardtanh", "identity", "rprelu")),
    "between layers; binrelu is max(x, -1)",
)


def _build(
    shape: Shape, classes: int, depth: int, width: int, activation: str, dropout: float
) -> nn.Module:
    from bitfront.trainables.models import networks

    return networks.MLP(shape, classes, depth, width, activation, dropout)


MODELS.add(
    "mlp",
    ModelInfo(
        name="mlp",
        doc="Linear-BN-activation layers and a linear classifier; the first layer and the "
        "classifier stay in full precision unless task.binarize is all",
        build=_build,
        params={
            "depth": Param(3, Int(1, 64), "hidden layers", search=Int(2, 6)),
            "width": Param(256, Int(1, 65536), "units a hidden layer", search=Int(32, 2048)),
            "activation": ACTIVATION,
            "dropout": Param(0.0, Float(0.0, 0.95), "before every linear layer"),
        },
        image=False,
    ),
)
