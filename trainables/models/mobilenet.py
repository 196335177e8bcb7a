"""MobileNetV1 in the B2NN form (docs/methods.md 4.3, 4.10)."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from bitfront.trainables.models.activations import ACTIVATION
from bitfront.trainables.models.activations import activation as make_activation
from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.models.residual import ConvUnit, Stem, start_convolutions, with_ends
from bitfront.trainables.parameters import Choice, Int
from bitfront.trainables.plan import PlanLayer

# Channels of the blocks in units of the width, and their strides (docs/methods.md 4.10).
MOBILENET_BLOCKS = (
    (1, 2, 1), (2, 4, 2), (4, 4, 1), (4, 8, 2), (8, 8, 1), (8, 16, 2),
    *((16, 16, 1),) * 5, (16, 32, 2), (32, 32, 1),
)  # fmt: skip


class MobileBlock(nn.Module):
    """A 3x3 convolution that keeps the number of channels, dense or depthwise, and a 1x1
    convolution that may double it. Each has a shortcut without weights: 2x2 average pooling where
    the size halves, a copy of all channels where their number doubles."""

    def __init__(self, inside: int, out: int, stride: int, activation: str, form: str) -> None:
        super().__init__()
        groups = inside if form == "depthwise" else 1
        self.spatial = ConvUnit(inside, inside, stride, groups=groups)
        self.pointwise = ConvUnit(inside, out, 1, kernel=1)
        self.act1 = make_activation(activation, inside)
        self.act2 = make_activation(activation, out)
        self.smaller: nn.Module = nn.Identity()
        if stride == 2:
            self.smaller = nn.AvgPool2d(2, ceil_mode=True)
        self.times = out // inside

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.spatial(x) + self.smaller(x))
        around = torch.cat([x] * self.times, 1) if self.times > 1 else x
        out: Tensor = self.act2(self.pointwise(x) + around)
        return out


@MODELS.declare("mobilenet")
class MobileNet(nn.Module):
    """MobileNetV1, 13 blocks of a 3x3 and a 1x1 convolution, each with a shortcut without weights;
    stem and classifier stay in full precision."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        form: str = parameter(
            "dense",
            Choice(("dense", "depthwise")),
            "the 3x3 convolution: dense as in ReActNet, or a channel at a time",
        ),
        width: int = parameter(32, Int(1, 256), "channels of the stem", search=Int(8, 32)),
        activation: str = ACTIVATION,
    ) -> None:
        super().__init__()
        self.stem = Stem(shape[0], width, "mobilenet", activation)
        self.blocks = nn.Sequential(
            *(
                MobileBlock(inside * width, out * width, stride, activation, form)
                for inside, out, stride in MOBILENET_BLOCKS
            )
        )
        self.classifier = nn.Linear(MOBILENET_BLOCKS[-1][1] * width, classes)
        start_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        logits: Tensor = self.classifier(torch.flatten(x.mean((2, 3)), 1))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        stages = itertools.accumulate(int(stride == 2) for _, _, stride in MOBILENET_BLOCKS)
        body = [
            PlanLayer(f"blocks.{b}.{name}.conv", str(b + 1), f"stage{stage + 1}")
            for b, stage in enumerate(stages)
            for name in ("spatial", "pointwise")
        ]
        return with_ends(body) if scope == "all" else body
