"""The torch modules of the networks that papers on binary optimizers train (methods.md 2.12, 3.3):
every weight may be binary, batch norm takes the place of scales and biases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.models.networks import start_convolutions
from bitfront.trainables.plan import PlanLayer


def in_order(model: nn.Module, scope: str) -> list[PlanLayer]:
    """Every convolution and linear layer as its own block; without the first and the last one in
    the scope `body`."""
    layers = [
        PlanLayer(name, name, "convolutions" if isinstance(module, nn.Conv2d) else "linear")
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    return layers if scope == "all" else layers[1:-1]


class NormedUnit(nn.Module):
    """A layer without bias, a pooling where there is one, then BN without gain and bias and ReLU in
    either order; the last layer of a network has no ReLU."""

    def __init__(
        self,
        layer: nn.Conv2d | nn.Linear,
        order: str,
        *,
        pool: bool = False,
        dropout: float = 0.0,
        eps: float = 1e-5,
        momentum: float = 0.1,
        last: bool = False,
    ) -> None:
        super().__init__()
        conv = isinstance(layer, nn.Conv2d)
        self.dropout = nn.Dropout(dropout)
        self.layer = layer
        self.pool: nn.Module = nn.MaxPool2d(2) if pool else nn.Identity()
        kind = nn.BatchNorm2d if conv else nn.BatchNorm1d
        self.norm = kind(layer.weight.shape[0], eps, momentum, affine=False)
        self.act: nn.Module = nn.Identity() if last else nn.ReLU()
        self.norm_first = order == "bn_relu"

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.layer(self.dropout(x)))
        return self.act(self.norm(x)) if self.norm_first else self.norm(self.act(x))


class NormedMLP(nn.Module):
    """[dropout - linear - BN - ReLU] x depth - dropout - linear - BN, all without learned
    numbers but the weights."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        depth: int,
        width: int,
        dropout: float,
        order: str,
    ) -> None:
        super().__init__()
        sizes = [math.prod(shape), *[width] * depth, classes]
        self.units = nn.Sequential(
            *(
                NormedUnit(
                    nn.Linear(a, b, bias=False),
                    order,
                    dropout=dropout,
                    eps=1e-4,
                    momentum=0.15,
                    last=i == depth,
                )
                for i, (a, b) in enumerate(itertools.pairwise(sizes))
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.units(x.flatten(1))

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        return in_order(self, scope)


class NormedCNN(nn.Module):
    """Convolutions of these widths and kernel, a max-pool behind those that say so, then linear
    layers; BN behind every one."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        convolutions: Sequence[tuple[int, bool]],
        kernel: int,
        linear: Sequence[int],
        order: str,
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        inside, height, across = shape
        units = []
        for out, pool in convolutions:
            layer = nn.Conv2d(inside, out, kernel, padding=kernel // 2, bias=False)
            units.append(NormedUnit(layer, order, pool=pool, momentum=momentum))
            inside = out
            if pool:
                height, across = height // 2, across // 2
        self.convolutions = nn.Sequential(*units)
        sizes = [inside * height * across, *linear, classes]
        self.linear = nn.Sequential(
            *(
                NormedUnit(nn.Linear(a, b, bias=False), order, last=i == len(linear))
                for i, (a, b) in enumerate(itertools.pairwise(sizes))
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.convolutions(x).flatten(1))

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        return in_order(self, scope)


class TanhMLP(nn.Module):
    """Linear layers with tanh between them. A bias is the weight of an input that is always 1, so
    that it is binary where its layer is. Two classes are one logit z: they get 0 and z."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, depth: int, width: int, norm_output: bool
    ) -> None:
        super().__init__()
        self.two = classes == 2
        outputs = 1 if self.two else classes
        sizes = [math.prod(shape), *[width] * depth, outputs]
        self.layers = nn.ModuleList(
            nn.Linear(a + 1, b, bias=False) for a, b in itertools.pairwise(sizes)
        )
        self.norm: nn.Module = nn.Identity()
        if norm_output:
            self.norm = nn.BatchNorm1d(outputs, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        x = x.flatten(1)
        for layer in hidden:
            x = torch.tanh(layer(F.pad(x, (0, 1), value=1.0)))
        z: Tensor = self.norm(last(F.pad(x, (0, 1), value=1.0)))
        return torch.cat([torch.zeros_like(z), z], 1) if self.two else z

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        return in_order(self, scope)


class ChannelBias(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class ChannelScale(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class PooledShortcut(nn.Module):
    """A 2x2 mean, a 1x1 convolution and BN, where a block halves the size."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(2, ceil_mode=True)
        self.conv = nn.Conv2d(inside, out, 1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(self.pool(x)))


class ReActBlock(nn.Module):
    """bias - (sign, by the plan) - 3x3 convolution - scale - BN - plus the shortcut - bias -
    PReLU - bias, everything a channel (methods.md 3.3)."""

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
        out = self.norm(self.scale(self.conv(self.before(x)))) + self.shortcut(x)
        return self.after(self.act(self.middle(out)))


class ReActResNet(nn.Module):
    """A stem, three stages of six blocks of one convolution each, a classifier (methods.md 3.3)."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        pool: bool,
        bias_layers: bool,
        act: str,
        scale: bool,
        binarize_first_last: bool,
        binarize_shortcut: bool,
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
        return self.classifier(x.mean((2, 3)))

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        """Ends and shortcuts keep real inputs: at level B their weights alone are binary."""
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
    """BN - ReLU - convolution, twice, and a shortcut around both; where the shape changes it is a
    1x1 convolution of what the first ReLU gives."""

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
            # Every `stride`th pixel, as in `networks.Projection`.
            around = self.shortcut(active[:, :, :: self.stride, :: self.stride])
        return around + self.conv2(F.relu(self.norm2(self.conv1(active))))


class WideResNet(nn.Module):
    """Pre-activation residual network of depth 6n + 4: the teacher of methods.md 3.4."""

    def __init__(self, shape: tuple[int, ...], classes: int, depth: int, width: int) -> None:
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
        return self.classifier(F.relu(self.norm(x)).mean((2, 3)))

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
