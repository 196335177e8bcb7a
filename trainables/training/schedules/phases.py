"""Phases of a training run: stretches of epochs, each with a new optimizer and its own run of every
schedule unless it continues the phase before. Most methods have one phase; a method with several
declares them, and in continual learning every task has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bitfront.trainables.errors import UserError


@dataclass(frozen=True)
class Phase:
    """A stretch of epochs. `best`: it begins with the weights of the best validation epoch of the
    phase before, else with the last ones. `continues`: it keeps the optimizer and the schedules of
    the phase before. `real`: weights are real numbers; the best epoch is chosen by their accuracy,
    not by that of the signs. `task`: the number of the task in continual learning, from 0. `rate`:
    a factor of the learning rate."""

    name: str
    epochs: int
    best: bool = False
    continues: bool = False
    real: bool = False
    task: int = 0
    rate: float = 1.0


def locate(phases: Sequence[Phase], epoch: int) -> tuple[int, int]:
    """(index of the phase that epoch number `epoch`, from 0, belongs to; its first epoch)."""
    first = 0
    for index, phase in enumerate(phases):
        if epoch < first + phase.epochs:
            return index, first
        first += phase.epochs
    raise ValueError(f"epoch {epoch} is beyond the {first} epochs of the phases")


def run_of(phases: Sequence[Phase], index: int) -> tuple[int, int]:
    """(index of the first phase, number of epochs) of the phases that share a run of the schedules
    with phase `index`."""
    first = index
    while first > 0 and phases[first].continues:
        first -= 1
    epochs = phases[first].epochs
    for phase in phases[first + 1 :]:
        if not phase.continues:
            break
        epochs += phase.epochs
    return first, epochs


def for_each_task(
    made: Callable[[int], Sequence[Phase]], epochs: int, tasks: int
) -> Sequence[Phase]:
    """The phases of all tasks of continual learning, one task after another, each with an equal
    share of the epochs; `made(n)` are the phases of a task of n epochs."""
    if tasks == 1:
        return made(epochs)
    if epochs % tasks:
        raise UserError(
            f"task.epochs: {epochs} epochs cannot be shared equally by {tasks} tasks",
            f"for example {max(1, round(epochs / tasks)) * tasks}",
        )
    each = made(epochs // tasks)
    if any(phase.real for phase in each):
        raise UserError(
            "real_share: weights that are binary after the first task cannot be real in the next"
        )
    return [
        replace(phase, name=f"task {k + 1}, {phase.name}", task=k)
        for k in range(tasks)
        for phase in each
    ]


def check(phases: Sequence[Phase], epochs: int) -> Sequence[Phase]:
    """The phases themselves; a ValueError where they do not add up to the epochs of the trial."""
    if sum(phase.epochs for phase in phases) != epochs or any(p.epochs < 1 for p in phases):
        shares = ", ".join(f"{p.name} {p.epochs}" for p in phases)
        raise ValueError(f"phases {shares} do not share out {epochs} epochs")
    return phases
