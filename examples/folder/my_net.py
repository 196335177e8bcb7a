"""A small convolutional network in plain torch."""

from torch import Tensor, nn


def block(inputs: int, outputs: int) -> nn.Sequential:
    """A convolution that halves the sides of the image."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class MyNet(nn.Module):
    """Four convolutions and a linear layer."""

    def __init__(self, num_classes: int, width: int = 16) -> None:
        super().__init__()
        self.stem = block(3, width)
        self.body = nn.ModuleList(
            [block(width, 2 * width), block(2 * width, 2 * width), block(2 * width, 4 * width)]
        )
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.body:
            x = layer(x)
        out: Tensor = self.head(x.mean((2, 3)))
        return out
