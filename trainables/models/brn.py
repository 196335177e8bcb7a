"""The networks of BNEW: a ResNet-20 in the form of ReActNet with the switches of its ablation, and
its teacher, a pre-activation residual network (docs/methods.md 3.3, 3.4, 3.8)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.models.residual import start_convolutions
from bitfront.trainables.parameters import Choice, Int
from bitfront.trainables.plan import PlanLayer


def _switch(default: bool, doc: str) -> Any:
    return parameter(default, Choice((True, False)), doc)


class ChannelBias(nn.Module):
    """A learned bias per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class ChannelScale(nn.Module):
    """A learned factor per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class PooledShortcut(nn.Module):
    """The shortcut of a block that halves the size: 2x2 average pooling, 1x1 convolution, BN."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(2, ceil_mode=True)
        self.conv = nn.Conv2d(inside, out, 1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(self.pool(x)))
        return out


class ReActBlock(nn.Module):
    """out = bias(PReLU(bias(BN(scale conv(bias(x))) + shortcut(x)))), with biases, scale and PReLU
    per channel (docs/methods.md 3.3). A plan puts the sign between the first bias and the 3x3
    convolution."""

    def __init__(self, inside: int, out: int, bias_layers: bool, act: str, scale: bool) -> None:
        super().__init__()

        def bias(channels: int) -> nn.Module:
            return ChannelBias(channels) if bias_layers else nn.Identity()

        self.before = bias(inside)
        stride = 1 if inside == out else 2
        self.conv = nn.Conv2d(inside, out, 3, stride, padding=1, bias=False)
        self.scale: nn.Module = ChannelScale(out) if scale else nn.Identity()
        self.norm = nn.BatchNorm2d(out)
        self.shortcut: nn.Module = nn.Identity()
        if inside != out:
            self.shortcut = PooledShortcut(inside, out)
        self.middle = bias(out)
        self.act: nn.Module = nn.PReLU(out) if act == "prelu" else nn.ReLU()
        self.after = bias(out)

    def forward(self, x: Tensor) -> Tensor:
        sums = self.norm(self.scale(self.conv(self.before(x)))) + self.shortcut(x)
        out: Tensor = self.after(self.act(self.middle(sums)))
        return out


@MODELS.declare("brn")
class ReActResNet(nn.Module):
    """ReActNet-like ResNet-20 of BNEW: 18 convolutions with a shortcut each; stem, 1x1 shortcuts
    and classifier stay in full precision unless switches say otherwise.

    A stem, three stages of six blocks of one convolution each, a classifier (docs/methods.md
    3.3)."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        pool: bool = _switch(True, "max-pool behind the stem, as in the authors' code"),
        bias_layers: bool = _switch(True, "the three learnable biases per channel of each block"),
        act: str = parameter("prelu", Choice(("prelu", "relu")), "non-linearity of the blocks"),
        scale: bool = _switch(True, "a learnable scale per channel behind each convolution"),
        binarize_first_last: bool = _switch(
            False, "the plan decides the weights of stem and classifier too"
        ),
        binarize_shortcut: bool = _switch(
            False, "the plan decides the weights of the 1x1 shortcuts too"
        ),
    ) -> None:
        super().__init__()
        self.ends, self.shortcuts = binarize_first_last, binarize_shortcut
        self.stem = nn.Conv2d(shape[0], 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.pool: nn.Module = nn.MaxPool2d(3, 2, padding=1) if pool else nn.Identity()
        self.stages = nn.ModuleList()
        inside = 16
        for out in (16, 32, 64):
            blocks = []
            for _ in range(6):
                blocks.append(ReActBlock(inside, out, bias_layers, act, scale))
                inside = out
            self.stages.append(nn.Sequential(*blocks))
        self.classifier = nn.Linear(inside, classes)
        start_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.norm(self.stem(x)))
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        """The layers a plan decides. Stem, classifier and shortcuts have `real_input`: a B that is
        drawn for several layers makes only their weights binary."""
        body = []
        for s, stage in enumerate(self.stages):
            for b, block in enumerate(stage.children()):
                where = f"{s + 1}.{b + 1}", f"stage{s + 1}"
                body.append(PlanLayer(f"stages.{s}.{b}.conv", *where))
                planned = scope == "all" or self.shortcuts
                if planned and isinstance(block.shortcut, PooledShortcut):
                    name = f"stages.{s}.{b}.shortcut.conv"
                    body.append(PlanLayer(name, *where, real_input=True))
        if scope != "all" and not self.ends:
            return body
        first = PlanLayer("stem", "stem", "stem", real_input=True)
        last = PlanLayer("classifier", "classifier", "classifier", real_input=True)
        return [first, *body, last]


class PreActivationBlock(nn.Module):
    """BN - ReLU - convolution, twice, and a shortcut around both: the identity or, where the shape
    changes, a 1x1 convolution of the first ReLU's output."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inside)
        self.conv1 = nn.Conv2d(inside, out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.stride = stride
        self.shortcut = nn.Conv2d(inside, out, 1, bias=False) if inside != out else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        around = x
        if self.shortcut is not None:
            # Every `stride`th pixel, as in `residual.Projection`.
            around = self.shortcut(active[:, :, :: self.stride, :: self.stride])
        out: Tensor = around + self.conv2(F.relu(self.norm2(self.conv1(active))))
        return out


@MODELS.declare("wideresnet")
class WideResNet(nn.Module):
    """Pre-activation ResNet of depth 6n + 4; with depth 22 and width 1 BNEW's teacher; stem, 1x1
    shortcuts and classifier stay in full precision.

    The teacher of docs/methods.md 3.4."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        depth: int = parameter(22, Int(10, 1000, step=6), "6n + 4", search=Choice((10, 16, 22))),
        width: int = parameter(1, Int(1, 64), "times 16 channels in the first stage"),
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(shape[0], 16, 3, padding=1, bias=False)
        self.stages = nn.ModuleList()
        inside = 16
        for stage, out in enumerate((16 * width, 32 * width, 64 * width)):
            blocks = []
            for block in range((depth - 4) // 6):
                stride = 2 if stage and not block else 1
                blocks.append(PreActivationBlock(inside, out, stride))
                inside = out
            self.stages.append(nn.Sequential(*blocks))
        self.norm = nn.BatchNorm2d(inside)
        self.classifier = nn.Linear(inside, classes)
        start_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.classifier(F.relu(self.norm(x)).mean((2, 3)))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        body = []
        for s, stage in enumerate(self.stages):
            for b, block in enumerate(stage.children()):
                names = ["conv1", "conv2"]
                if scope == "all" and block.shortcut is not None:
                    names.insert(0, "shortcut")
                body += [
                    PlanLayer(f"stages.{s}.{b}.{name}", f"{s + 1}.{b + 1}", f"stage{s + 1}")
                    for name in names
                ]
        if scope != "all":
            return body
        return [
            PlanLayer("stem", "stem", "stem"),
            *body,
            PlanLayer("classifier", "classifier", "classifier"),
        ]
