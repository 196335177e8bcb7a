"""The larger networks of MixBin in the B2NN form, ResNet-18 and MobileNetV1 (methods.md 4.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, check_image
from bitfront.trainables.models.cresnet import UNIT
from bitfront.trainables.models.mlp import ACTIVATION
from bitfront.trainables.parameters import Choice, Int, Param

if TYPE_CHECKING:
    from torch import nn


def _resnet18(
    shape: Shape, classes: int, stem: str, width: int, activation: str, unit: str
) -> nn.Module:
    check_image("resnet18", shape)
    from bitfront.trainables.models import networks

    return networks.ResidualNetwork(shape, classes, (2, 2, 2, 2), width, stem, activation, unit)


MODELS.add(
    "resnet18",
    ModelInfo(
        name="resnet18",
        doc="ResNet-18, four stages of two blocks; stem, 1x1 shortcuts and classifier stay in full "
        "precision",
        build=_resnet18,
        params={
            "stem": Param(
                "imagenet",
                Choice(("imagenet", "tiny", "cifar")),
                "7x7 of stride 2 and a max-pool; without the max-pool, for 64x64; 3x3, for 32x32",
            ),
            "width": Param(64, Int(1, 1024), "channels of the first stage", search=Int(16, 64)),
            "activation": ACTIVATION,
            "unit": UNIT,
        },
    ),
)


def _mobilenet(shape: Shape, classes: int, form: str, width: int, activation: str) -> nn.Module:
    check_image("mobilenet", shape)
    from bitfront.trainables.models import networks

    return networks.MobileNet(shape, classes, width, activation, form)


MODELS.add(
    "mobilenet",
    ModelInfo(
        name="mobilenet",
        doc="MobileNetV1, 13 blocks of a 3x3 and a 1x1 convolution, each with a shortcut without "
        "weights; stem and classifier stay in full precision",
        build=_mobilenet,
        params={
            "form": Param(
                "dense",
                Choice(("dense", "depthwise")),
                "the 3x3 convolution: dense as in ReActNet, or a channel at a time",
            ),
            "width": Param(32, Int(1, 256), "channels of the stem", search=Int(8, 32)),
            "activation": ACTIVATION,
        },
    ),
)
