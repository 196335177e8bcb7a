"""A binarization method of one's own: a quantizer with its gradient."""

import torch
from torch import Tensor


class Cosine:
    """F = sign; B falls like a cosine from 1 at the origin to 0 at |w| = reach."""

    def __init__(self, reach: float = 1.0) -> None:
        self.reach = reach

    def forward(self, w: Tensor) -> Tensor:
        return torch.where(w >= 0, 1.0, -1.0)

    def backward(self, w: Tensor) -> Tensor:
        inside = (w / self.reach).clamp(-1, 1)
        return torch.cos(torch.pi / 2 * inside)


def soft_sign(w: Tensor, progress: float, steepest: float = 10.0) -> Tensor:
    """F = tanh(s w), which becomes the sign while s grows to `steepest`; B is its derivative."""
    return torch.tanh((1 + (steepest - 1) * progress) * w)
