"""Residual networks in the B2NN form, one shortcut per convolution: the CIFAR networks of depth 6n
+ 2 and the ResNet-18 of MixBin (docs/methods.md 4.9, 4.10). A module says which of its layers a
plan may decide (`plan_layers`); it does not know what a binary layer is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.models.activations import ACTIVATION
from bitfront.trainables.models.activations import activation as make_activation
from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.parameters import Choice, Int
from bitfront.trainables.plan import PlanLayer

UNIT = parameter(
    "bi-real",
    Choice(("bi-real", "classic")),
    "one shortcut per convolution (bi-real) or one around every two (classic)",
)


class ConvUnit(nn.Module):
    """Convolution and batch norm, BN(conv(x)). The blocks add shortcuts and activations."""

    def __init__(
        self, inside: int, out: int, stride: int, kernel: int = 3, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            inside, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False
        )
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x))
        return out


class Projection(nn.Module):
    """The strided 1x1 convolution of a shortcut, computed as a 1x1 convolution of every `stride`th
    pixel: the same result without the kernel that crashes (`training.network.memory_format`)."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(inside, out, 1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x[:, :, :: self.stride, :: self.stride]))
        return out


class Block(nn.Module):
    """Two convolutions with activations. bi-real: a shortcut around each of them,
    out = act(BN(conv(x)) + shortcut(x)) twice (docs/methods.md 4.9); classic: one around both."""

    def __init__(self, inside: int, out: int, stride: int, activation: str, unit: str) -> None:
        super().__init__()
        self.per_conv = unit == "bi-real"
        self.first = ConvUnit(inside, out, stride)
        self.second = ConvUnit(out, out, 1)
        self.act1 = make_activation(activation, out)
        self.act2 = make_activation(activation, out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != out:
            self.shortcut = Projection(inside, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        around = self.shortcut(x)
        if self.per_conv:
            x = self.act1(self.first(x) + around)
            around = x
        else:
            x = self.act1(self.first(x))
        out: Tensor = self.act2(self.second(x) + around)
        return out


class Stem(nn.Module):
    """The first convolution with batch norm and activation: 3x3 (cifar), 3x3 of stride 2
    (mobilenet), 7x7 of stride 2 (tiny), that and a max-pool (imagenet)."""

    def __init__(self, inside: int, out: int, kind: str, activation: str) -> None:
        super().__init__()
        kernel, stride = {"cifar": (3, 1), "mobilenet": (3, 2)}.get(kind, (7, 2))
        self.conv = nn.Conv2d(inside, out, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(out)
        self.act = make_activation(activation, out)
        self.pool: nn.Module = nn.Identity()
        if kind == "imagenet":
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.pool(self.act(self.norm(self.conv(x))))
        return out


def stage_layers(stages: nn.ModuleList, scope: str) -> list[PlanLayer]:
    """The layers a plan decides in `stages`, a module's list of Sequentials of blocks: the
    convolutions of the blocks, and those of shortcuts in the scope `all`."""
    layers = []
    for s, stage in enumerate(stages):
        for b, block in enumerate(stage.children()):
            names = ["first", "second"]
            if scope == "all" and not isinstance(block.shortcut, nn.Identity):
                names.append("shortcut")
            layers += [
                PlanLayer(f"stages.{s}.{b}.{name}.conv", f"{s + 1}.{b + 1}", f"stage{s + 1}")
                for name in names
            ]
    return layers


def start_convolutions(model: nn.Module) -> None:
    """Draw the weights of all convolutions as He et al. do, by fan-out."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def with_ends(body: list[PlanLayer]) -> list[PlanLayer]:
    """The layers of the body between the stem and the classifier."""
    classifier = PlanLayer("classifier", "classifier", "classifier")
    return [PlanLayer("stem.conv", "stem", "stem"), *body, classifier]


class ResidualNetwork(nn.Module):
    """A stem, stages of blocks, each stage of twice the width and half the size, a classifier."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        blocks: Sequence[int],
        width: int,
        stem: str,
        activation: str,
        unit: str,
    ) -> None:
        super().__init__()
        self.stem = Stem(shape[0], width, stem, activation)
        self.stages = nn.ModuleList()
        inside = width
        for stage, count in enumerate(blocks):
            out = width * 2**stage
            units = []
            for block in range(count):
                stride = 2 if stage and not block else 1
                units.append(Block(inside, out, stride, activation, unit))
                inside = out
            self.stages.append(nn.Sequential(*units))
        self.classifier = nn.Linear(inside, classes)
        start_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.classifier(torch.flatten(x.mean((2, 3)), 1))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        body = stage_layers(self.stages, scope)
        return with_ends(body) if scope == "all" else body


@MODELS.declare("cresnet")
def cresnet(
    shape: Shape,
    classes: int,
    *,
    depth: int = parameter(20, Int(8, 1202, step=6), "6n + 2", search=Choice((8, 14, 20))),
    width: int = parameter(16, Int(1, 1024), "channels of the first stage", search=Int(4, 32)),
    activation: str = ACTIVATION,
    unit: str = UNIT,
) -> nn.Module:
    """CIFAR ResNet, depth 6n + 2, three stages of width, 2 width, 4 width; projection shortcuts;
    stem, 1x1 shortcuts and classifier stay in full precision."""
    if (depth - 2) % 6:
        raise UserError(
            f"model.depth: a cresnet has 6n + 2 layers, {depth} is not of that form",
            f"nearest: {max(8, round((depth - 2) / 6) * 6 + 2)}",
        )
    blocks = [(depth - 2) // 6] * 3
    return ResidualNetwork(shape, classes, blocks, width, "cifar", activation, unit)


@MODELS.declare("cresnet20")
def cresnet20(
    shape: Shape, classes: int, *, activation: str = ACTIVATION, unit: str = UNIT
) -> nn.Module:
    """Cresnet of depth 20 and width 16: the CIFAR network of MixBin."""
    return cresnet(shape, classes, depth=20, width=16, activation=activation, unit=unit)


@MODELS.declare("resnet18")
def resnet18(
    shape: Shape,
    classes: int,
    *,
    stem: str = parameter(
        "imagenet",
        Choice(("imagenet", "tiny", "cifar")),
        "7x7 of stride 2 and a max-pool; without the max-pool, for 64x64; 3x3, for 32x32",
    ),
    width: int = parameter(64, Int(1, 1024), "channels of the first stage", search=Int(16, 64)),
    activation: str = ACTIVATION,
    unit: str = UNIT,
) -> nn.Module:
    """ResNet-18, four stages of two blocks; stem, 1x1 shortcuts and classifier stay in full
    precision."""
    return ResidualNetwork(shape, classes, (2, 2, 2, 2), width, stem, activation, unit)
