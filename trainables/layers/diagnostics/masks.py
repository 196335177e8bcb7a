"""Diagnostics of the masks of pruned layers."""

from __future__ import annotations

from bitfront.trainables.layers.diagnostics.base import DIAGNOSTICS, Diagnostic, State


def _changed(state: State) -> tuple[float, int] | None:
    if not state.pruned:
        return None
    now, before = state.now != 0, state.before != 0
    return int((now & ~before).sum()), int(now.sum())


DIAGNOSTICS.register(
    Diagnostic(
        "mask_change", "share of the kept weights that are new since the last epoch", _changed
    )
)
