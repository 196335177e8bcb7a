"""A 1-D convolutional network for windows of several sensors."""

from torch import Tensor, nn


class Wave(nn.Module):
    """Three convolutions over time, of which the third is used twice."""

    def __init__(
        self, in_channels: int, num_classes: int, width: int = 16, kernel: int = 7
    ) -> None:
        super().__init__()
        self.first = nn.Conv1d(in_channels, width, kernel, stride=2, padding=kernel // 2)
        self.second = nn.Conv1d(width, 2 * width, kernel, stride=2, padding=kernel // 2)
        self.third = nn.Conv1d(2 * width, 2 * width, 3, padding=1)
        sizes = (width, 2 * width, 2 * width, 2 * width)
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for size in sizes)
        self.head = nn.Linear(2 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        layers = (self.first, self.second, self.third, self.third)
        for layer, norm in zip(layers, self.norms, strict=True):
            x = norm(layer(x)).relu()
        out: Tensor = self.head(x.mean(2))
        return out
