"""Diagnostics of the latents of binary layers (docs/methods.md 1.16)."""

from __future__ import annotations

from bitfront.trainables.layers.diagnostics.base import DIAGNOSTICS, Diagnostic, State

DEAD = 1e-3


def _flipped(state: State) -> tuple[float, int] | None:
    if state.pruned:
        return None
    return int((state.now != state.before).sum()), state.now.numel()


def _dead(state: State) -> tuple[float, int] | None:
    if state.pruned:
        return None
    _, backward = state.forward_backward
    return int((backward.abs() < DEAD).sum()), backward.numel()


def _distance(state: State) -> tuple[float, int] | None:
    if state.pruned:
        return None
    forward, _ = state.forward_backward
    return float((forward - state.now).abs().sum()), forward.numel()


DIAGNOSTICS.register(
    Diagnostic("flip_rate", "share of the weights that changed sign in the epoch", _flipped)
)
DIAGNOSTICS.register(
    Diagnostic("dead_share", "share of the weights with |B| < 1e-3: almost no gradient", _dead)
)
DIAGNOSTICS.register(Diagnostic("distance_to_binary", "mean |F(w) - sign(w)|", _distance))
