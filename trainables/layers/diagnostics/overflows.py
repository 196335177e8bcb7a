"""Diagnostics of the narrow accumulators of A layers (docs/methods.md 1.14)."""

from __future__ import annotations

from bitfront.trainables.layers.accumulators import Accumulator
from bitfront.trainables.layers.diagnostics.base import DIAGNOSTICS, Diagnostic, State


def _overflowed(state: State) -> tuple[float, int] | None:
    accumulator = getattr(state.layer.module, "accumulator", None)
    return accumulator.take_counts() if isinstance(accumulator, Accumulator) else None


DIAGNOSTICS.register(
    Diagnostic("overflow_rate", "share of the sums of A layers that overflow", _overflowed)
)
