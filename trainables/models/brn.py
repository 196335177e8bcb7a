"""The networks of BNEW: a ResNet-20 in the form of ReActNet with the switches of its ablation, and
its teacher, a pre-activation residual network (methods.md 3.3, 3.4, 3.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, check_image
from bitfront.trainables.parameters import Choice, Int, Param

if TYPE_CHECKING:
    from torch import nn


def _switch(default: bool, doc: str) -> Param:
    return Param(default, Choice((True, False)), doc)


def _brn(
    shape: Shape,
    classes: int,
    pool: bool,
    bias_layers: bool,
    act: str,
    scale: bool,
    binarize_first_last: bool,
    binarize_shortcut: bool,
) -> nn.Module:
    check_image("brn", shape)
    from bitfront.trainables.models import binary_networks

    return binary_networks.ReActResNet(
        shape, classes, pool, bias_layers, act, scale, binarize_first_last, binarize_shortcut
    )


MODELS.add(
    "brn",
    ModelInfo(
        name="brn",
        doc="ReActNet-like ResNet-20 of BNEW: 18 convolutions with a shortcut each; stem, 1x1 "
        "shortcuts and classifier stay in full precision unless switches say otherwise",
        build=_brn,
        params={
            "pool": _switch(True, "max-pool behind the stem, as in the authors' code"),
            "bias_layers": _switch(True, "the three learnable biases a channel of each block"),
            "act": Param("prelu", Choice(("prelu", "relu")), "non-linearity of the blocks"),
            "scale": _switch(True, "a learnable scale a channel behind each convolution"),
            "binarize_first_last": _switch(
                False, "the plan decides the weights of stem and classifier too"
            ),
            "binarize_shortcut": _switch(
                False, "the plan decides the weights of the 1x1 shortcuts too"
            ),
        },
    ),
)


def _wide(shape: Shape, classes: int, depth: int, width: int) -> nn.Module:
    check_image("wideresnet", shape)
    from bitfront.trainables.models import binary_networks

    return binary_networks.WideResNet(shape, classes, depth, width)


MODELS.add(
    "wideresnet",
    ModelInfo(
        name="wideresnet",
        doc="pre-activation ResNet of depth 6n + 4; with depth 22 and width 1 BNEW's teacher; "
        "stem, 1x1 shortcuts and classifier stay in full precision",
        build=_wide,
        params={
            "depth": Param(22, Int(10, 1000, step=6), "6n + 4", search=Choice((10, 16, 22))),
            "width": Param(1, Int(1, 64), "times 16 channels in the first stage"),
        },
    ),
)
