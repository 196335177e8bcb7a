"""Residual networks for pruning and adversarial training: the CIFAR ResNet-34 of robust binary
pruning, its small dense forms, and narrow relatives for a CPU (docs/methods.md 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.models.residual import (
    Block,
    Stem,
    stage_layers,
    start_convolutions,
    with_ends,
)
from bitfront.trainables.parameters import Choice, Int
from bitfront.trainables.plan import PlanLayer

LBN = parameter(
    False, Choice((True, False)), "a batch norm of the logits, without learned parameters"
)
AFFINE = parameter(
    True,
    Choice((True, False)),
    "batch norms learn a scale and a shift; edge-popup and rst want false: only scores are trained",
)
# Channels of the stages: of the full network, and of dense networks with about 1 % of its weights,
# in each of which a layer has as many weights as pruning with the exponent p would keep.
SIZES = {
    "full": (64, 128, 256, 512),
    "p0": (26, 26, 26, 26),
    "p0.1": (23, 25, 27, 29),
    "p0.5": (14, 20, 29, 40),
    "p1": (6, 13, 26, 51),
}


class PlainResNet(nn.Module):
    """The residual network of robust pruning (docs/methods.md 5.1): a stem, stages of classic
    blocks with any channels, a 1x1 convolution without bias as the classifier and, optionally, a
    batch norm of the logits (LBN). Batch norms may be without learned scales and shifts."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        blocks: Sequence[int],
        channels: Sequence[int],
        lbn: bool,
        affine: bool,
        stem: str = "cifar",
    ) -> None:
        super().__init__()
        self.stem = Stem(shape[0], channels[0], stem, "relu")
        self.stages = nn.ModuleList()
        inside = channels[0]
        for stage, (count, out) in enumerate(zip(blocks, channels, strict=True)):
            units = []
            for block in range(count):
                stride = 2 if stage and not block else 1
                units.append(Block(inside, out, stride, "relu", "classic"))
                inside = out
            self.stages.append(nn.Sequential(*units))
        self.classifier = nn.Conv2d(inside, classes, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(classes) if lbn else nn.Identity()
        start_convolutions(self)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d) and (not affine or module is self.last_norm):
                module.affine = False
                module.register_parameter("weight", None)
                module.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return torch.flatten(self.last_norm(self.classifier(x.mean((2, 3), keepdim=True))), 1)

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        body = stage_layers(self.stages, scope)
        return with_ends(body) if scope == "all" else body


@MODELS.declare("rn34")
def rn34(
    shape: Shape,
    classes: int,
    *,
    size: str = parameter(
        "full",
        Choice(tuple(SIZES)),
        "full (64 to 512 channels), or a small dense network shaped like the full one "
        "pruned with exponent p",
    ),
    lbn: bool = LBN,
    affine: bool = AFFINE,
    stem: str = parameter(
        "cifar",
        Choice(("cifar", "imagenet")),
        "3x3, or for large images 7x7 of stride 2 and a max-pool",
    ),
) -> nn.Module:
    """ResNet-34 with a 1x1 convolution as classifier and a stem for CIFAR; small forms too."""
    return PlainResNet(shape, classes, (3, 4, 6, 3), SIZES[size], lbn, affine, stem)


@MODELS.declare("rn-narrow")
def rn_narrow(
    shape: Shape,
    classes: int,
    *,
    width: int = parameter(16, Int(1, 512), "channels of the first stage", search=Int(8, 64)),
    stages: int = parameter(3, Int(1, 4), "each of half the size and twice the channels"),
    blocks: int = parameter(1, Int(1, 16), "of two convolutions, per stage"),
    lbn: bool = LBN,
    affine: bool = AFFINE,
) -> nn.Module:
    """A narrow relative of rn34 for a CPU: any width, one to four stages."""
    channels = [width * 2**stage for stage in range(stages)]
    return PlainResNet(shape, classes, [blocks] * stages, channels, lbn, affine)
