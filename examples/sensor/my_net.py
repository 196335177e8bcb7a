"""A 1-D convolutional network for windows of several sensors."""

from torch import Tensor, nn


class Wave(nn.Module):
    """Four convolutions over time; the third one is used twice."""

    def __init__(
        self, in_channels: int, num_classes: int, width: int = 16, kernel: int = 7
    ) -> None:
        super().__init__()
        self.first = nn.Conv1d(in_channels, width, kernel, stride=2, padding=kernel // 2)
        self.second = nn.Conv1d(width, 2 * width, kernel, stride=2, padding=kernel // 2)
        self.again = nn.Conv1d(2 * width, 2 * width, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in (width, 2 * width, 2 * width))
        self.head = nn.Linear(2 * width, num_classes)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norms[0](self.first(x)))
        x = self.act(self.norms[1](self.second(x)))
        x = x + self.act(self.norms[2](self.again(x)))
        x = x + self.act(self.norms[2](self.again(x)))
        out: Tensor = self.head(x.mean(2))
        return out
