"""What a final training reports while it runs: its epochs, and notes. How a terminal shows them is
in `bitfront.terminal.training_progress`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bitfront.search.recipes.recipe import Recipe


@dataclass(frozen=True)
class EpochReport:
    """The state of a seed after an epoch, or when its training begins or continues (without a
    loss)."""

    seed: int
    done: int
    epochs: int
    loss: float | None = None
    accuracy: float | None = None
    """on a part of the training examples: most final trainings have no validation part"""
    soft: bool = False
    """whether that is the accuracy of weights that are made binary only at the end"""
    validation: float | None = None
    """the quality of the binary network on a validation part that is held out"""

    @property
    def state_of_weights(self) -> str:
        """What to know about the accuracy; '' where it is that of the binary network."""
        return " (weights not binary yet)" if self.soft else ""

    def text(self) -> str:
        text = f"seed {self.seed}: epoch {self.done}/{self.epochs}, loss {self.loss:.4f}"
        if self.accuracy is not None:
            text += f", train accuracy {100 * self.accuracy:.1f} %{self.state_of_weights}"
        if self.validation is not None:
            text += f", validation {self.validation:.4g}"
        return text


class SeedView(Protocol):
    """Receives the epochs and notes of one seed."""

    def note(self, text: str) -> None: ...

    def epoch(self, report: EpochReport) -> None: ...


class TrainingView(SeedView, Protocol):
    """Receives the epochs and notes of all seeds of a recipe."""

    def start(self, recipe: Recipe, seeds: int) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """A line per epoch, given to `say`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def start(self, recipe: Recipe, seeds: int) -> None:
        """Do nothing: the first line is that of the first epoch."""

    def note(self, text: str) -> None:
        self.say(text)

    def epoch(self, report: EpochReport) -> None:
        if report.loss is not None:
            self.say(report.text())

    def stop(self) -> None:
        """Do nothing: there is no bar to remove."""
