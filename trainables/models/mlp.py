"""Multilayer perceptrons with batch norm, for any input shape."""

from __future__ import annotations

import itertools
import math

from torch import Tensor, nn

from bitfront.trainables.models.activations import ACTIVATION
from bitfront.trainables.models.activations import activation as make_activation
from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.parameters import Float, Int
from bitfront.trainables.plan import PlanLayer


@MODELS.declare("mlp", image=False)
class MLP(nn.Module):
    """Linear-BN-activation layers and a linear classifier; the first layer and the classifier stay
    in full precision unless task.binarize is all."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        depth: int = parameter(3, Int(1, 64), "hidden layers", search=Int(2, 6)),
        width: int = parameter(256, Int(1, 65536), "units per hidden layer", search=Int(32, 2048)),
        activation: str = ACTIVATION,
        dropout: float = parameter(0.0, Float(0.0, 0.95), "before every linear layer"),
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
        logits: Tensor = self.classifier(self.dropout(x))
        return logits

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        first = 0 if scope == "all" else 1
        names = [f"layers.{i}" for i in range(first, len(self.layers))]
        if scope == "all":
            names.append("classifier")
        return [PlanLayer(name, block=name, stage="hidden") for name in names]
