"""Plans of least damage where layers act in pairs: a quadratic programme over binary variables,

    min_x sum_i d_ii x_i + sum_{i<j} d_ij x_i x_j    with    low <= 100 - sum_i s_i x_i <= high

solved by trying every plan of up to EXACT layers, else by local search, with a bound on what may be
missing. Numbers in, numbers out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# With so many layers every plan is tried: a million, in a tenth of a second.
EXACT = 20
# Starts of the local search.
STARTS = 40
ROUNDING = 1e-9


@dataclass(frozen=True)
class Solution:
    """A plan of least damage, as far as was found."""

    binary: frozenset[int]
    damage: float
    gap: float
    """how much less the least damage can be at most; 0 where every plan was tried"""

    @property
    def exact(self) -> bool:
        """Whether no plan has less damage."""
        return self.gap == 0


def least_damage(
    pairs: Sequence[Sequence[float]], saved: Sequence[float], low: float, high: float
) -> Solution | None:
    """The layers that are to be binary; None where no plan that was looked at has flops between
    `low` and `high`, in percent. `pairs`: d, of which the diagonal and what is above it count;
    `saved`: s, the percent of the flops that a binary layer saves."""
    return _solved(tuple(map(tuple, pairs)), tuple(saved), low, high)


@lru_cache(maxsize=1024)
def _solved(
    pairs: tuple[tuple[float, ...], ...], saved: tuple[float, ...], low: float, high: float
) -> Solution | None:
    damage, save = np.triu(np.array(pairs, dtype=float)), np.array(saved, dtype=float)
    low, high = low - ROUNDING, high + ROUNDING
    if len(saved) <= EXACT:
        return _tried(damage, save, low, high)
    return _searched(damage, save, low, high)


@lru_cache(maxsize=4)
def _every(pairs: bytes, saved: bytes, layers: int) -> tuple[Floats, Floats]:
    """The damage and flops of every plan; bit i of its number says that layer i is binary."""
    damage = np.frombuffer(pairs).reshape(layers, layers)
    save = np.frombuffer(saved)
    total, flops = np.zeros(1), np.full(1, 100.0)
    for k in range(layers):
        beside = np.zeros(1)
        for j in range(k):  # what layer k adds to the damage, beside the layers before it
            beside = np.concatenate([beside, beside + damage[j, k]])
        total = np.concatenate([total, total + damage[k, k] + beside])
        flops = np.concatenate([flops, flops - save[k]])
    return total, flops


def _tried(damage: Floats, save: Floats, low: float, high: float) -> Solution | None:
    layers = len(save)
    total, flops = _every(damage.tobytes(), save.tobytes(), layers)
    fits = (flops >= low) & (flops <= high)
    if not fits.any():
        return None
    best = int(np.argmin(np.where(fits, total, np.inf)))
    return Solution(frozenset(i for i in range(layers) if best >> i & 1), float(total[best]), 0.0)


def _searched(damage: Floats, save: Floats, low: float, high: float) -> Solution | None:
    """The best of many descents: a layer more, one less, or one for another."""
    whole = damage + np.triu(damage, 1).T
    rng, best = random.Random(0), None
    for start in range(STARTS):
        x = _begun(whole, save, low, high, rng if start else None)
        if x is None:
            continue
        x = _descended(whole, save, low, high, x)
        found = value(damage, x)
        if best is None or found < best[0]:
            best = found, x
    if best is None:
        return None
    # Rounding must not make a bound of what is best.
    gap = max(best[0] - bound(damage, save, low, high), ROUNDING)
    return Solution(frozenset(np.flatnonzero(best[1]).tolist()), best[0], gap)


def value(damage: Floats, x: NDArray[np.bool_]) -> float:
    """The damage of a plan; of `damage` the diagonal and what is above it count."""
    number = x.astype(float)
    return float(number @ np.triu(damage) @ number)


def _begun(
    whole: Floats, save: Floats, low: float, high: float, rng: random.Random | None
) -> NDArray[np.bool_] | None:
    """A plan within the bounds: layers are made binary by their damage per flop until the flops are
    low enough; with `rng` in an order that is disturbed."""
    x = np.zeros(len(save), dtype=bool)
    price = whole.diagonal() / np.maximum(save, ROUNDING)
    if rng is not None:
        spread = float(np.std(price)) or 1.0
        price = price + spread * np.array([rng.gauss(0, 1) for _ in save])
    flops = 100.0
    for i in np.argsort(price, kind="stable"):
        if flops <= high:
            break
        if flops - save[i] >= low:
            x[i], flops = True, flops - save[i]
    return x if low <= flops <= high else None


def _descended(
    whole: Floats, save: Floats, low: float, high: float, x: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """The plan after the best changes of one or two layers, until none is better."""
    own, beside = whole.diagonal(), whole - np.diag(whole.diagonal())
    sign = np.where(x, -1.0, 1.0)
    while True:
        flops = 100.0 - float(save[x].sum())
        one = sign * (own + beside @ x)
        after = flops - sign * save
        alone = np.where((after >= low) & (after <= high), one, np.inf)
        two = one[:, None] + one[None] + np.outer(sign, sign) * beside
        moved = after[:, None] - (sign * save)[None]
        two = np.where((moved >= low) & (moved <= high), two, np.inf)
        np.fill_diagonal(two, np.inf)
        if min(alone.min(), two.min()) >= -ROUNDING:
            return x
        x = x.copy()
        if alone.min() <= two.min():
            changed = [int(alone.argmin())]
        else:
            changed = list(np.unravel_index(int(two.argmin()), two.shape))  # type: ignore[arg-type]
        x[changed] = ~x[changed]
        sign = np.where(x, -1.0, 1.0)


def bound(damage: Floats, save: Floats, low: float, high: float) -> float:
    """A number that the damage of no plan within the bounds is below. Since x_i x_j >= 0 and
    x_i x_j <= (x_i + x_j) / 2, terms of pairs above 0 are left out and those below are halved
    between both layers; what remains is a linear programme over x in [0, 1]."""
    both = np.minimum(np.triu(damage, 1), 0.0)
    alone = damage.diagonal() + 0.5 * (both.sum(0) + both.sum(1))
    # All layers of negative damage, then the cheapest ones per flop until the flops are low enough,
    # the last one in part; or back, where they are too low.
    x = (alone < 0).astype(float)
    flops = 100.0 - float(save @ x)
    per = alone / np.maximum(save, ROUNDING)
    need = flops - high if flops > high else (flops - low if flops < low else 0.0)
    order = np.argsort(per if need > 0 else -per, kind="stable")
    for i in order:
        if need == 0:
            break
        room = (1 - x[i]) if need > 0 else x[i]
        step = min(room, abs(need) / max(save[i], ROUNDING))
        x[i] += step if need > 0 else -step
        left = abs(need) - step * save[i]
        need = 0.0 if left <= ROUNDING else float(np.copysign(left, need))
    return float(alone @ x)


def grown(pairs: Sequence[Sequence[float]], saved: Sequence[float]) -> list[int]:
    """The order in which layers are made binary one by one, each time the one that adds the least
    damage per flop to those before it."""
    damage = np.triu(np.array(pairs, dtype=float))
    whole = damage + np.triu(damage, 1).T
    left, x = list(range(len(saved))), np.zeros(len(saved))
    beside = whole - np.diag(whole.diagonal())
    order: list[int] = []
    while left:
        added = whole.diagonal() + beside @ x
        best = min(left, key=lambda i: (added[i] / max(saved[i], ROUNDING), i))
        left.remove(best)
        order.append(best)
        x[best] = 1.0
    return order
