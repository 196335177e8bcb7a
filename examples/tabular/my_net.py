"""A multilayer perceptron for tables."""

from torch import nn


def mlp(in_features: int, num_classes: int, width: int = 64, depth: int = 4) -> nn.Module:
    """`depth` linear layers with batch norms and ReLUs between them."""
    layers: list[nn.Module] = []
    for _ in range(depth - 1):
        layers += [nn.Linear(in_features, width), nn.BatchNorm1d(width), nn.ReLU()]
        in_features = width
    return nn.Sequential(*layers, nn.Linear(width, num_classes))
