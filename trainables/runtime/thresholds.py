"""What the input of a binary layer is compared with: whatever stands before the sign (a shift, a
norm, both) is monotone in every channel, so that each channel has one smallest float whose sign is
+1."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitfront.trainables.structure.kinds import inputs_of, per_channel

# The floats in ascending order are these integers: -inf is the first, +inf the last.
_FIRST, _LAST = -0x7F800000, 0x7F800000


def _floats(order: Tensor) -> Tensor:
    """The floats at these places of the ascending order."""
    bits = torch.where(order >= 0, order, -order - 2**31)
    return bits.to(torch.int32).view(torch.float32)


@torch.no_grad()
def thresholds(layer: nn.Module) -> NDArray[np.float32]:
    """The smallest input of every channel that the layer's quantizer makes +1, found by bisection
    with the quantizer itself, so that its rounding is torch's; NaN, which no input reaches, where
    there is none."""
    quantizer: nn.Module = layer.input_quantizer  # type: ignore[assignment]
    count = inputs_of(layer)
    shape = per_channel(layer, inputs=True)
    low = torch.full((count,), _FIRST, dtype=torch.int64)
    high = torch.full((count,), _LAST + 1, dtype=torch.int64)

    def positive(order: Tensor) -> Tensor:
        x = _floats(order).view(shape if len(shape) > 1 else (1, count))
        signs: Tensor = quantizer(x)
        return signs.flatten() > 0

    # Invariant: everything below `low` is -1, everything from `high` on is +1.
    while bool((low < high).any()):
        middle = (low + high) // 2
        above = positive(middle.clamp(max=_LAST)) & (middle <= _LAST)
        high = torch.where(above, middle, high)
        low = torch.where(above | (low >= high), low, middle + 1)
    found = _floats(high.clamp(max=_LAST))
    found[high > _LAST] = torch.nan
    return found.numpy()


def places(found: NDArray[np.float32]) -> NDArray[np.int32]:
    """The places of thresholds in the order of floats, as kernels compare them. Of the zeros, the
    negative one comes first; only NaNs reach what no number does."""
    bits = np.where(found == 0, np.float32(-0.0), found).astype(np.float32).view(np.int32)
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return np.where(np.isnan(found), _LAST + 1, ascending).astype(np.int32)
