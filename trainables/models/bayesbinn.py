"""Networks of BayesBiNN and LR-net (methods.md 2.4, 2.8, 2.12): no biases, batch norm without
learned numbers. Their papers make every layer binary: `task.binarize: all`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, check_image
from bitfront.trainables.parameters import Choice, Float, Int, Param

if TYPE_CHECKING:
    from torch import nn

ORDER = Param(
    "bn_relu",
    Choice(("bn_relu", "relu_bn")),
    "batch norm before ReLU, as in the authors' code, or behind it, as the paper prints",
)


def _mlp(
    shape: Shape, classes: int, depth: int, width: int, dropout: float, order: str
) -> nn.Module:
    from bitfront.trainables.models import binary_networks

    return binary_networks.NormedMLP(shape, classes, depth, width, dropout, order)


MODELS.add(
    "bayesbinn-mlp",
    ModelInfo(
        name="bayesbinn-mlp",
        doc="the MLP of BayesBiNN on MNIST; with depth 2, width 100 and no dropout that of "
        "permuted MNIST",
        build=_mlp,
        params={
            "depth": Param(3, Int(1, 64), "hidden layers", search=Int(2, 4)),
            "width": Param(2048, Int(1, 65536), "units a hidden layer", search=Int(64, 2048)),
            "dropout": Param(0.2, Float(0.0, 0.95), "before every linear layer"),
            "order": ORDER,
        },
        image=False,
    ),
)


def _cnn(shape: Shape, classes: int, width: int, order: str) -> nn.Module:
    check_image("bayesbinn-cnn", shape)
    from bitfront.trainables.models import binary_networks

    convolutions = [(width * 2 ** (i // 2), i % 2 == 1) for i in range(6)]
    return binary_networks.NormedCNN(
        shape, classes, convolutions, 3, [8 * width, 8 * width], order, momentum=0.2
    )


MODELS.add(
    "bayesbinn-cnn",
    ModelInfo(
        name="bayesbinn-cnn",
        doc="the VGG-like network of BayesBiNN on CIFAR: six 3x3 convolutions, three linear layers",
        build=_cnn,
        params={
            "width": Param(
                128, Int(1, 1024), "channels of the first convolution", search=Int(16, 128)
            ),
            "order": ORDER,
        },
    ),
)


def _tanh(shape: Shape, classes: int, depth: int, width: int, norm_output: bool) -> nn.Module:
    from bitfront.trainables.models import binary_networks

    return binary_networks.TanhMLP(shape, classes, depth, width, norm_output)


MODELS.add(
    "tanh-mlp",
    ModelInfo(
        name="tanh-mlp",
        doc="the small MLP of BayesBiNN for two moons and Snelson's data; biases are weights of an "
        "input of 1, binary where their layer is",
        build=_tanh,
        params={
            "depth": Param(2, Int(1, 64), "hidden layers"),
            "width": Param(64, Int(1, 65536), "units a hidden layer", search=Int(16, 256)),
            "norm_output": Param(
                False, Choice((True, False)), "batch norm on the output, as for regression"
            ),
        },
        image=False,
    ),
)


def _lrnet_mnist(shape: Shape, classes: int, order: str) -> nn.Module:
    check_image("lrnet-mnist", shape)
    from bitfront.trainables.models import binary_networks

    return binary_networks.NormedCNN(shape, classes, [(32, True), (64, True)], 5, [512], order)


def _lrnet_cifar(shape: Shape, classes: int, order: str) -> nn.Module:
    check_image("lrnet-cifar", shape)
    from bitfront.trainables.models import binary_networks

    convolutions = [(128 * 2 ** (i // 2), i % 2 == 1) for i in range(6)]
    return binary_networks.NormedCNN(shape, classes, convolutions, 3, [1024], order)


MODELS.add(
    "lrnet-mnist",
    ModelInfo(
        name="lrnet-mnist",
        doc="LR-net's network for MNIST: 32C5-MP2-64C5-MP2-512FC and a classifier",
        build=_lrnet_mnist,
        params={"order": ORDER},
    ),
)
MODELS.add(
    "lrnet-cifar",
    ModelInfo(
        name="lrnet-cifar",
        doc="LR-net's network for CIFAR: 2x128C3-MP2-2x256C3-MP2-2x512C3-MP2-1024FC and a "
        "classifier",
        build=_lrnet_cifar,
        params={"order": ORDER},
    ),
)
