"""How many weights each layer of a pruned network keeps, and what that costs: arithmetic known
before any training (docs/methods.md 5.3, 5.6, 5.11). Which weights are kept is in `sparse`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitfront.trainables.errors import UserError

# Products such as (1 - 0.0228) 10000 may end just below a whole number.
ROUNDING = 1e-6
INDEX_BYTES = 4


def shares(sizes: Sequence[int], rate: float, p: float) -> list[float]:
    """Adaptive layer-wise pruning (Liu et al., NeurIPS 2022; docs/methods.md 5.3): layer i keeps
    m_i = min(n_i, c n_i^p) weights, with c such that sum m_i = (1 - r) sum n_i. From the smallest
    layer on, whole weights are taken off the budget and c is computed anew for the rest."""
    left = int((1 - rate) * sum(sizes))
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    powers = [sizes[i] ** p for i in order]
    # For each layer, the sum of n_j^p over itself and all larger ones.
    behind = [*itertools.accumulate(reversed(powers))][::-1]
    c = (1 - rate) * sum(sizes) / behind[0] if behind else 0.0
    found = [0.0] * len(sizes)
    for place, i in enumerate(order):
        found[i] = max(0.0, min(float(sizes[i]), c * powers[place]))
        left -= int(found[i])
        if place + 1 < len(order):
            c = left / behind[place + 1]
    return found


def counts(sizes: Sequence[int], rate: float, p: float) -> list[int]:
    """Weights each layer keeps: n - int(n - m), at most one more than m (docs/methods.md 5.10)."""
    return [
        n - math.floor(n - m + ROUNDING) for n, m in zip(sizes, shares(sizes, rate, p), strict=True)
    ]


def gas_counts(sizes: Sequence[int], rate: float) -> list[int]:
    """Ideal-gas quotas: layer i keeps the share 1 / (1 + F n_i), F such that (1 - rate) of all
    weights are kept: large layers give more (docs/methods.md 5.8, the `igq` rule of FlyingBird)."""
    wanted = (1 - rate) * sum(sizes)
    low, high = 0.0, 1.0
    while sum(n / (1 + high * n) for n in sizes) > wanted:
        high *= 2
    for _ in range(200):
        force = (low + high) / 2
        if sum(n / (1 + force * n) for n in sizes) > wanted:
            low = force
        else:
            high = force
    return [math.ceil(n / (1 + high * n) - ROUNDING) for n in sizes]


def check_counts(kept: Mapping[str, int], setting: str) -> dict[str, int]:
    """The counts, or an error where a layer would be left with nothing."""
    empty = [name for name, count in kept.items() if count < 1]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise UserError(
            f"{setting} leaves nothing of layer {empty[0]}{more}",
            "a lower rate keeps more weights, a smaller p more of the small layers",
        )
    return dict(kept)


# --- storage ------------------------------------------------------------------------------------


def as_bitmap(size: int, kept: int) -> bool:
    """Whether a bit for every weight takes no more than an index for every kept one."""
    return (size + 7) // 8 <= INDEX_BYTES * kept


def mask_bytes(size: int, kept: int) -> int:
    """What it takes to say which weights are kept, in the smaller form (docs/methods.md 5.11)."""
    return (size + 7) // 8 if as_bitmap(size, kept) else INDEX_BYTES * kept


# --- Table 6 ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockCost:
    """Operations of one convolution with batch norm and ReLU, as the paper counts them."""

    training_forward: float
    evaluation_forward: float
    backward: float

    def __add__(self, other: BlockCost) -> BlockCost:
        return BlockCost(
            self.training_forward + other.training_forward,
            self.evaluation_forward + other.evaluation_forward,
            self.backward + other.backward,
        )


def block_cost(macs: float, elements: int, weights: int, kept: float, binary: bool) -> BlockCost:
    """Table 6 of robust pruning (docs/methods.md 5.6), with n = c^2 s^2 r_in r_out MACs when dense,
    e = s^2 r_out output elements and the share k = 1 - r of the c^2 r_in r_out weights left:

    forward in training    2 k n + 11 e;           binary: k n + 11 e
    forward in evaluation  2 k n + 4 e;            binary: k n + 4 e
    backward               4 k n + 4 e + weights;  binary: 3 k n + 4 e"""
    forward = kept * macs * (1 if binary else 2)
    backward = kept * macs * (3 if binary else 4) + 4 * elements
    if not binary:
        backward += weights
    return BlockCost(forward + 11 * elements, forward + 4 * elements, backward)
