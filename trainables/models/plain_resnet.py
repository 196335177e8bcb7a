"""Residual networks for pruning and adversarial training: the CIFAR ResNet-34 of robust binary
pruning, its small dense forms, and narrow relatives for a CPU (methods.md 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, check_image
from bitfront.trainables.parameters import Choice, Int, Param

if TYPE_CHECKING:
    from torch import nn

LBN = Param(False, Choice((True, False)), "a batch norm of the logits, without learned parameters")
AFFINE = Param(
    True,
    Choice((True, False)),
    "batch norms learn a scale and a shift; edge-popup and rst want false: only scores are trained",
)
# Channels of the stages: the network itself, and dense ones of about 1 % of its weights whose
# layers are as large as pruning with exponent p would leave them.
SIZES = {
    "full": (64, 128, 256, 512),
    "p0": (26, 26, 26, 26),
    "p0.1": (23, 25, 27, 29),
    "p0.5": (14, 20, 29, 40),
    "p1": (6, 13, 26, 51),
}


def _build_34(shape: Shape, classes: int, size: str, lbn: bool, affine: bool) -> nn.Module:
    check_image("rn34", shape)
    from bitfront.trainables.models import networks

    return networks.PlainResNet(shape, classes, (3, 4, 6, 3), SIZES[size], lbn, affine)


MODELS.add(
    "rn34",
    ModelInfo(
        name="rn34",
        doc="CIFAR ResNet-34 with a 1x1 convolution as classifier; small dense forms too",
        build=_build_34,
        params={
            "size": Param(
                "full",
                Choice(tuple(SIZES)),
                "full (64 to 512 channels), or a small dense network shaped like the full one "
                "pruned with exponent p",
            ),
            "lbn": LBN,
            "affine": AFFINE,
        },
    ),
)


def _build_narrow(
    shape: Shape, classes: int, width: int, stages: int, blocks: int, lbn: bool, affine: bool
) -> nn.Module:
    check_image("rn-narrow", shape)
    from bitfront.trainables.models import networks

    channels = [width * 2**stage for stage in range(stages)]
    return networks.PlainResNet(shape, classes, [blocks] * stages, channels, lbn, affine)


MODELS.add(
    "rn-narrow",
    ModelInfo(
        name="rn-narrow",
        doc="a narrow relative of rn34 for a CPU: any width, one to four stages",
        build=_build_narrow,
        params={
            "width": Param(16, Int(1, 512), "channels of the first stage", search=Int(8, 64)),
            "stages": Param(3, Int(1, 4), "each of half the size and twice the channels"),
            "blocks": Param(1, Int(1, 16), "of two convolutions a stage"),
            "lbn": LBN,
            "affine": AFFINE,
        },
    ),
)
