"""The ResNet-20 of CIFAR as it was first published: two convolutions a block and one shortcut
around both. Layers are named as public checkpoints name them, so that those load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, check_image
from bitfront.trainables.models.mlp import ACTIVATION
from bitfront.trainables.parameters import Choice, Param

if TYPE_CHECKING:
    from torch import nn


def _build(shape: Shape, classes: int, shortcut: str, activation: str) -> nn.Module:
    check_image("resnet20", shape)
    from bitfront.trainables.models import networks

    return networks.ResNet20(shape, classes, shortcut, activation)


MODELS.add(
    "resnet20",
    ModelInfo(
        name="resnet20",
        doc="CIFAR ResNet-20, one shortcut a block; public checkpoints load into it; stem, 1x1 "
        "shortcuts and classifier stay in full precision",
        build=_build,
        params={
            "shortcut": Param(
                "pad",
                Choice(("pad", "projection")),
                "where a block changes shape: every second pixel and zero channels (option A) or "
                "a 1x1 convolution (option B)",
            ),
            "activation": Param(
                "relu",
                ACTIVATION.domain,
                "between layers; behind relu all signs are +1, so level B wants another one",
            ),
        },
    ),
)
