"""How many weights each layer of a pruned network keeps, and what that costs, both known before
training (docs/methods.md 5.3, 5.6, 5.11). Which weights are kept is decided in `sparse`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bitfront.trainables.errors import UserError

# Products such as (1 - 0.0228) 10000 may come out just below a whole number.
ROUNDING = 1e-6
INDEX_BYTES = 4


def shares(sizes: Sequence[int], rate: float, p: float) -> list[float]:
    """Adaptive layer-wise pruning (Liu et al., NeurIPS 2022; docs/methods.md 5.3): layer i keeps
    m_i = min(n_i, c n_i^p) of its n_i weights, with c such that sum m_i = (1 - r) sum n_i. In the
    order of n_i, int(m_i) is taken off what is left of the budget, and
    c = left / sum of n_j^p over the larger layers."""
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


def counts(sizes: Sequence[int], rate: float, p: float, down: bool = False) -> list[int]:
    """The number of weights each layer keeps: n_i - int(n_i - m_i), at most one more than m_i, as
    the released code of robust pruning does; `down`: int(m_i), as its text says (docs/methods.md
    5.10)."""
    exact = shares(sizes, rate, p)
    if down:
        return [math.floor(m + ROUNDING) for m in exact]
    return [n - math.floor(n - m + ROUNDING) for n, m in zip(sizes, exact, strict=True)]


def gas_counts(sizes: Sequence[int], rate: float) -> list[int]:
    """`_gas_counts`, which a search asks for again and again."""
    return list(_gas_counts(tuple(sizes), rate))


@lru_cache(maxsize=256)
def _gas_counts(sizes: tuple[int, ...], rate: float) -> list[int]:
    """The number of weights each layer keeps by ideal-gas quotas, the `igq` rule of FlyingBird
    (docs/methods.md 5.8): n_i / (1 + F n_i), with F such that (1 - rate) sum n_i are kept. A larger
    layer loses a larger share. F is found by bisection."""
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
    """The counts themselves; a UserError where a layer would keep no weight."""
    empty = [name for name, count in kept.items() if count < 1]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise UserError(
            f"{setting} leaves nothing of layer {empty[0]}{more}",
            "a lower rate keeps more weights, a smaller p more of the small layers",
        )
    return dict(kept)


# --- masks at random ----------------------------------------------------------------------------


def survivors(weights: int, kept: int, part: int = 9) -> list[float]:
    """The expected numbers of parts of a layer that keep 0, 1, ..., `part` weights, where `kept` of
    its n `weights` are chosen at random. A part has c weights: a 3x3 kernel 9, an input channel
    9 r_out. They are n/c times the hypergeometric P(X = k) = C(c, k) C(n - c, m - k) / C(n, m)."""
    parts = weights / part
    return [
        parts
        * math.exp(
            _log_binomial(part, k)
            + _log_binomial(weights - part, kept - k)
            - _log_binomial(weights, kept)
        )
        if 0 <= kept - k <= weights - part
        else 0.0
        for k in range(part + 1)
    ]


def survivors_by_stirling(
    weights: int, kept: int, k: int, part: int = 9, whole: bool = False
) -> float:
    """The expected number of parts with k > 0 survivors as robust pruning estimates it (Liu et al.,
    NeurIPS 2022, eq. (10); docs/methods.md 5.6), with m = `kept` of n = `weights`:

    n/c P(X = k),  P(X = k) ~ sqrt(m / (2 pi k (m - k))) (c e (1 - r) / k)^k,  1 - r = m / n

    `whole`: with the factor (1 - c/n)^(m - k), which is near 1 for kernels and not for channels, as
    in eq. (11), where c = 9 r_out and c/n = 1 / r_in."""
    share = kept / weights
    chance = math.sqrt(kept / (2 * math.pi * k * (kept - k)))
    if whole:
        chance *= (1 - part / weights) ** (kept - k)
    return weights / part * chance * (part * math.e * share / k) ** k


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# --- storage ------------------------------------------------------------------------------------


def as_bitmap(size: int, kept: int) -> bool:
    """Whether one bit per weight takes no more bytes than one index per kept weight."""
    return (size + 7) // 8 <= INDEX_BYTES * kept


def mask_bytes(size: int, kept: int) -> int:
    """The bytes of a mask in the smaller of its two forms (docs/methods.md 5.11)."""
    return (size + 7) // 8 if as_bitmap(size, kept) else INDEX_BYTES * kept


# --- Table 6 ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockCost:
    """Operations of one convolution with batch norm and ReLU, as Table 6 of robust pruning counts
    them."""

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
    """Table 6 of robust pruning (Liu et al., NeurIPS 2022; docs/methods.md 5.6), with
    n = c^2 s^2 r_in r_out MACs of the dense layer, e = s^2 r_out output elements, c^2 r_in r_out
    weights and the kept share k = 1 - r:

    forward in training    2 k n + 11 e;           binary: k n + 11 e
    forward in evaluation  2 k n + 4 e;            binary: k n + 4 e
    backward               4 k n + 4 e + weights;  binary: 3 k n + 4 e"""
    forward = kept * macs * (1 if binary else 2)
    backward = kept * macs * (3 if binary else 4) + 4 * elements
    if not binary:
        backward += weights
    return BlockCost(forward + 11 * elements, forward + 4 * elements, backward)
