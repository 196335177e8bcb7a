"""The torch modules behind the declared models. A module says which of its layers a plan may
decide (`plan_layers`); it does not know what a binary layer is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.models.activations import activation as make_activation
from bitfront.trainables.plan import PlanLayer


class MLP(nn.Module):
    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        depth: int,
        width: int,
        activation: str,
        dropout: float,
    ) -> None:
        super().__init__()
        sizes = [math.prod(shape)] + [width] * depth
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(depth))
        self.activations = nn.ModuleList(make_activation(activation, width) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer, norm, act in zip(self.layers, self.norms, self.activations, strict=True):
            x = act(norm(layer(self.dropout(x))))
        return self.classifier(self.dropout(x))

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        first = 0 if scope == "all" else 1
        names = [f"layers.{i}" for i in range(first, len(self.layers))]
        if scope == "all":
            names.append("classifier")
        return [PlanLayer(name, block=name, stage="hidden") for name in names]


class ConvUnit(nn.Module):
    """Convolution and batch norm; in the Bi-Real form with its own shortcut and activation:
    out = act(BN(conv(x)) + shortcut(x)) (methods.md 4.9)."""

    def __init__(
        self, inside: int, out: int, stride: int, kernel: int = 3, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            inside, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False
        )
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Projection(nn.Module):
    """The strided 1x1 convolution of a shortcut, as a 1x1 convolution of every `stride`th pixel:
    the same numbers without the kernel that `training.memory_format` warns of."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(inside, out, 1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x[:, :, :: self.stride, :: self.stride]))


class Block(nn.Module):
    """Two convolutions, with one shortcut each (bi-real) or one around both (classic)."""

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
            middle = self.act1(self.first(x) + around)
            return self.act2(self.second(middle) + middle)
        return self.act2(self.second(self.act1(self.first(x))) + around)


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
        return self.pool(self.act(self.norm(self.conv(x))))


def stage_layers(stages: nn.ModuleList, scope: str) -> list[PlanLayer]:
    """The convolutions of `stages`, a module's list of Sequentials of blocks; the ones of shortcuts
    in the scope `all`."""
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


class ResidualNetwork(nn.Module):
    """A stem, stages of blocks, each stage of twice the width and half the size, a classifier."""

    def __init__(
        self,
        shape: tuple[int, ...],
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
        return self.classifier(torch.flatten(x.mean((2, 3)), 1))

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        body = stage_layers(self.stages, scope)
        return with_ends(body) if scope == "all" else body


# Channels of MobileNetV1's blocks in units of the width, and their strides (methods.md 4.10).
MOBILENET_BLOCKS = (
    (1, 2, 1), (2, 4, 2), (4, 4, 1), (4, 8, 2), (8, 8, 1), (8, 16, 2),
    *((16, 16, 1),) * 5, (16, 32, 2), (32, 32, 1),
)  # fmt: skip


class MobileBlock(nn.Module):
    """A 3x3 convolution that keeps the channels, dense or depthwise, and a 1x1 one that may double
    them. Each has its own shortcut: a 2x2 mean where the size halves, the channels twice where
    they double, so that no shortcut has weights."""

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
        return self.act2(self.pointwise(x) + around)


class MobileNet(nn.Module):
    """MobileNetV1 in the B2NN form (methods.md 4.3, 4.10)."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, width: int, activation: str, form: str
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
        return self.classifier(torch.flatten(x.mean((2, 3)), 1))

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        stages = itertools.accumulate(int(stride == 2) for _, _, stride in MOBILENET_BLOCKS)
        body = [
            PlanLayer(f"blocks.{b}.{name}.conv", str(b + 1), f"stage{stage + 1}")
            for b, stage in enumerate(stages)
            for name in ("spatial", "pointwise")
        ]
        return with_ends(body) if scope == "all" else body


def start_convolutions(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def with_ends(body: list[PlanLayer]) -> list[PlanLayer]:
    classifier = PlanLayer("classifier", "classifier", "classifier")
    return [PlanLayer("stem.conv", "stem", "stem"), *body, classifier]


class PaddedShortcut(nn.Module):
    """Every second pixel, and zeros for the channels that are new, half of them on either side
    (option A)."""

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
        out = self.act1(self.bn1(self.conv1(x)))
        return self.act2(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet20(nn.Module):
    STAGES = ("layer1", "layer2", "layer3")

    def __init__(
        self, shape: tuple[int, ...], classes: int, shortcut: str, activation: str
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
        return self.linear(x.mean((2, 3)))

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


class PlainResNet(nn.Module):
    """The residual network of robust pruning (methods.md 5.1): 3x3 stem, stages of classic blocks
    with any channels, a 1x1 convolution without bias as the classifier and, optionally, a batch
    norm of the logits (LBN). Batch norms may be without learned scales and shifts."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        blocks: Sequence[int],
        channels: Sequence[int],
        lbn: bool,
        affine: bool,
    ) -> None:
        super().__init__()
        self.stem = Stem(shape[0], channels[0], "cifar", "relu")
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
