"""A network for images of 8x8 pixels."""

from torch import Tensor, nn


class DigitNet(nn.Module):
    """Three convolutions and a linear layer; binary activations come from batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.third = nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (16, 32, 32))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip((self.first, self.second, self.third), self.norms, strict=True):
            x = norm(layer(x))
        out: Tensor = self.head(x.relu().mean((2, 3)))
        return out
