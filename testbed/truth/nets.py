"""Networks of truth tables that the library does not have."""

from __future__ import annotations

from torch import Tensor, nn


class ResidualMLP(nn.Module):
    """x + act(BN(linear(x))) `depth` times between a linear embedding and a linear classifier."""

    def __init__(
        self, num_classes: int, inputs: int = 784, width: int = 32, depth: int = 7
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(depth))
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.flatten(1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + nn.functional.hardtanh(norm(layer(x)))
        logits: Tensor = self.classifier(x)
        return logits


class Blocks(nn.Module):
    """x + linear(act(BN(linear(x)))) 12 times, the inner widths of the blocks all different."""

    def __init__(self, num_classes: int, inputs: int = 64, width: int = 24) -> None:
        super().__init__()
        inner = [6 + (29 * i) % 48 for i in range(12)]
        self.embed = nn.Linear(inputs, width)
        self.up = nn.ModuleList(nn.Linear(width, n, bias=False) for n in inner)
        self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in inner)
        self.down = nn.ModuleList(nn.Linear(n, width, bias=False) for n in inner)
        self.ends = nn.ModuleList(nn.BatchNorm1d(width) for _ in inner)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.flatten(1))
        for up, norm, down, end in zip(self.up, self.norms, self.down, self.ends, strict=True):
            x = x + end(down(nn.functional.hardtanh(norm(up(x)))))
        logits: Tensor = self.classifier(x)
        return logits
