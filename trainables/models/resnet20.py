"""The ResNet-20 of CIFAR as it was first published: two convolutions per block and one shortcut
around both. Layers have the names of public checkpoints, so that these can be loaded."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.models.activations import ACTIVATION
from bitfront.trainables.models.activations import activation as make_activation
from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.models.residual import Projection, start_convolutions
from bitfront.trainables.parameters import Choice
from bitfront.trainables.plan import PlanLayer


class PaddedShortcut(nn.Module):
    """The shortcut called option A: every second pixel, and channels of zeros added, half of them
    before and half behind the others."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.before = (out - inside) // 2
        self.behind = out - inside - self.before

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.behind))


class BasicBlock(nn.Module):
    """Two convolutions and one shortcut around both: act(bn2(conv2(act(bn1(conv1 x)))) + x)."""

    def __init__(self, inside: int, out: int, shortcut: str, activation: str) -> None:
        super().__init__()
        stride = 1 if inside == out else 2
        self.conv1 = nn.Conv2d(inside, out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.act1 = make_activation(activation, out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.act2 = make_activation(activation, out)
        self.shortcut: nn.Module = nn.Identity()
        if inside != out:
            padded = shortcut == "pad"
            self.shortcut = (
                PaddedShortcut(inside, out) if padded else Projection(inside, out, stride)
            )

    def forward(self, x: Tensor) -> Tensor:
        middle = self.act1(self.bn1(self.conv1(x)))
        out: Tensor = self.act2(self.bn2(self.conv2(middle)) + self.shortcut(x))
        return out


@MODELS.declare("resnet20")
class ResNet20(nn.Module):
    """CIFAR ResNet-20, one shortcut per block; public checkpoints load into it; stem, 1x1 shortcuts
    and classifier stay in full precision."""

    STAGES = ("layer1", "layer2", "layer3")

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        shortcut: str = parameter(
            "pad",
            Choice(("pad", "projection")),
            "where a block changes shape: every second pixel and zero channels (option A) or "
            "a 1x1 convolution (option B)",
        ),
        activation: str = parameter(
            "relu",
            ACTIVATION.domain,
            "between layers; behind relu all signs are +1, so level B wants another one",
        ),
    ) -> None:
        super().__init__()
        inside = 16
        self.conv1 = nn.Conv2d(shape[0], inside, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.act1 = make_activation(activation, inside)
        for stage, out in zip(self.STAGES, (16, 32, 64), strict=True):
            blocks = [
                BasicBlock(inside if b == 0 else out, out, shortcut, activation) for b in range(3)
            ]
            self.add_module(stage, nn.Sequential(*blocks))
            inside = out
        self.linear = nn.Linear(inside, classes)
        start_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.bn1(self.conv1(x)))
        for stage in self.STAGES:
            x = self.get_submodule(stage)(x)
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        body = []
        for stage in self.STAGES:
            for b, block in enumerate(self.get_submodule(stage).children()):
                names = ["conv1", "conv2"]
                if scope == "all" and isinstance(block.shortcut, Projection):
                    names.append("shortcut.conv")
                body += [PlanLayer(f"{stage}.{b}.{n}", f"{stage}.{b}", stage) for n in names]
        if scope == "all":
            stem = PlanLayer("conv1", "conv1", "conv1")
            return [stem, *body, PlanLayer("linear", "linear", "linear")]
        return body
