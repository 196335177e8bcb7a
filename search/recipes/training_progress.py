"""What a final training reports while it works: its epochs, and notes. What a person sees of them
is in `bitfront.terminal.training_progress`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bitfront.search.recipes.recipe import Recipe


@dataclass(frozen=True)
class EpochTold:
    """Where a seed is after an epoch; with none done, where it begins."""

    seed: int
    done: int
    epochs: int
    loss: float | None = None
    accuracy: float | None = None
    """on some of the examples it trains on: final training has no validation part"""

    def text(self) -> str:
        told = f"seed {self.seed}: epoch {self.done}/{self.epochs}, loss {self.loss:.4f}"
        if self.accuracy is not None:
            told += f", train accuracy {100 * self.accuracy:.1f} %"
        return told


class Shown(Protocol):
    """Who is told how a seed gets on."""

    def note(self, text: str) -> None: ...

    def epoch(self, told: EpochTold) -> None: ...


class ShownTraining(Shown, Protocol):
    """Who is told how all seeds of a recipe get on."""

    def start(self, recipe: Recipe, seeds: int) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """A line per epoch, given to `say`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def start(self, recipe: Recipe, seeds: int) -> None:
        """Nothing is said before the first epoch."""

    def note(self, text: str) -> None:
        self.say(text)

    def epoch(self, told: EpochTold) -> None:
        if told.loss is not None:
            self.say(told.text())

    def stop(self) -> None:
        """Nothing is left to say."""
