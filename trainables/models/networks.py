"""The torch modules behind the declared models. A module says which of its layers a plan may
decide (`plan_layers`); it does not know what a binary layer is."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from trainables.models.activations import activation as make_activation
from trainables.plan import PlanLayer


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

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, out, 3, stride=stride, padding=1, bias=False)
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


class CResNet(nn.Module):
    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        blocks: int,
        width: int,
        activation: str,
        unit: str,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.act = make_activation(activation, width)
        self.stages = nn.ModuleList()
        inside = width
        for stage in range(3):
            out = width * 2**stage
            units = []
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                units.append(Block(inside, out, stride, activation, unit))
                inside = out
            self.stages.append(nn.Sequential(*units))
        self.classifier = nn.Linear(inside, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.stem(x)))
        for stage in self.stages:
            x = stage(x)
        return self.classifier(torch.flatten(x.mean((2, 3)), 1))

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        body = stage_layers(self.stages, scope)
        if scope == "all":
            stem = PlanLayer("stem", "stem", "stem")
            return [stem, *body, PlanLayer("classifier", "classifier", "classifier")]
        return body
