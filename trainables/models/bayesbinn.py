"""Networks of BayesBiNN and LR-net (docs/methods.md 2.4, 2.8, 2.12): no biases, batch norms without
affine parameters. Their papers make every layer binary: `task.binarize: all`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.parameters import Choice, Float, Int
from bitfront.trainables.plan import PlanLayer

ORDER = parameter(
    "bn_relu",
    Choice(("bn_relu", "relu_bn")),
    "batch norm before ReLU, as in the authors' code, or after it, as the paper prints",
)


def in_order(model: nn.Module, scope: str) -> list[PlanLayer]:
    """The convolutions and linear layers of a network, each its own block; the scope `body` leaves
    out the first and the last one."""
    layers = [
        PlanLayer(name, name, "convolutions" if isinstance(module, nn.Conv2d) else "linear")
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    return layers if scope == "all" else layers[1:-1]


class NormedUnit(nn.Module):
    """A layer without bias, optional pooling, then batch norm without affine parameters and ReLU,
    in either order; the last unit of a network has no ReLU."""

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
        out: Tensor = self.act(self.norm(x)) if self.norm_first else self.norm(self.act(x))
        return out


@MODELS.declare("bayesbinn-mlp", image=False)
class NormedMLP(nn.Module):
    """The MLP of BayesBiNN on MNIST; with depth 2, width 100 and no dropout that of permuted MNIST.

    [dropout - linear - BN - ReLU] x depth - dropout - linear - BN; only the weights are
    learned."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        depth: int = parameter(3, Int(1, 64), "hidden layers", search=Int(2, 4)),
        width: int = parameter(2048, Int(1, 65536), "units per hidden layer", search=Int(64, 2048)),
        dropout: float = parameter(0.2, Float(0.0, 0.95), "before every linear layer"),
        order: str = ORDER,
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
        logits: Tensor = self.units(x.flatten(1))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        return in_order(self, scope)


class NormedCNN(nn.Module):
    """Convolutions, then linear layers, each with batch norm. `convolutions` are pairs (output
    channels, whether a max-pool follows), `linear` the widths of the hidden linear layers."""

    def __init__(
        self,
        shape: Shape,
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
        logits: Tensor = self.linear(self.convolutions(x).flatten(1))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        return in_order(self, scope)


@MODELS.declare("tanh-mlp", image=False)
class TanhMLP(nn.Module):
    """The small MLP of BayesBiNN for two moons and Snelson's data; biases are weights of an input
    of 1, binary where their layer is.

    Linear layers with tanh between them. For two classes the network computes one logit z and
    returns the logits (0, z)."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        depth: int = parameter(2, Int(1, 64), "hidden layers"),
        width: int = parameter(64, Int(1, 65536), "units per hidden layer", search=Int(16, 256)),
        norm_output: bool = parameter(
            False, Choice((True, False)), "batch norm on the output, as for regression"
        ),
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


@MODELS.declare("bayesbinn-cnn")
def bayesbinn_cnn(
    shape: Shape,
    classes: int,
    *,
    width: int = parameter(
        128, Int(1, 1024), "channels of the first convolution", search=Int(16, 128)
    ),
    order: str = ORDER,
) -> nn.Module:
    """The VGG-like network of BayesBiNN on CIFAR: six 3x3 convolutions, three linear layers."""
    convolutions = [(width * 2 ** (i // 2), i % 2 == 1) for i in range(6)]
    linear = [8 * width, 8 * width]
    return NormedCNN(shape, classes, convolutions, 3, linear, order, momentum=0.2)


@MODELS.declare("lrnet-mnist")
def lrnet_mnist(shape: Shape, classes: int, *, order: str = ORDER) -> nn.Module:
    """LR-net's network for MNIST: 32C5-MP2-64C5-MP2-512FC and a classifier."""
    return NormedCNN(shape, classes, [(32, True), (64, True)], 5, [512], order)


@MODELS.declare("lrnet-cifar")
def lrnet_cifar(shape: Shape, classes: int, *, order: str = ORDER) -> nn.Module:
    """LR-net's network for CIFAR: 2x128C3-MP2-2x256C3-MP2-2x512C3-MP2-1024FC and a classifier."""
    convolutions = [(128 * 2 ** (i // 2), i % 2 == 1) for i in range(6)]
    return NormedCNN(shape, classes, convolutions, 3, [1024], order)
