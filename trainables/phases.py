"""Phases of a training run: stretches of epochs, each with a fresh optimizer and its own run of
every schedule. Most methods have one; a method that trains in several declares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """`best` begins with the weights of the best epoch of the phase before, by validation
    accuracy, where there is one to go by; else with the last ones. `rate` is a factor of the
    learning rate."""

    name: str
    epochs: int
    best: bool = False
    rate: float = 1.0


def locate(phases: Sequence[Phase], epoch: int) -> tuple[int, int]:
    """(index of the phase that epoch number `epoch`, from 0, belongs to; its first epoch)."""
    first = 0
    for index, phase in enumerate(phases):
        if epoch < first + phase.epochs:
            return index, first
        first += phase.epochs
    raise ValueError(f"epoch {epoch} is beyond the {first} epochs of the phases")


def check(phases: Sequence[Phase], epochs: int) -> Sequence[Phase]:
    """The phases, which must share out exactly the epochs of the trial."""
    if sum(phase.epochs for phase in phases) != epochs or any(p.epochs < 1 for p in phases):
        shares = ", ".join(f"{p.name} {p.epochs}" for p in phases)
        raise ValueError(f"phases {shares} do not share out {epochs} epochs")
    return phases
