"""Values that change during training, as functions of the fraction of training that has passed:
with fewer epochs the schedule is rescaled. Used for learning rates, quantizer sharpness,
temperatures and pruning strengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# Each shape maps the fraction of training that has passed, in [0, 1], to the share of the way from
# the first value to the last one.
SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda _f: 0.0,
    "linear": lambda f: f,
    "cosine": lambda f: 0.5 * (1.0 - math.cos(math.pi * f)),
}


@dataclass(frozen=True)
class Schedule:
    """`start` up to the fraction `begin`, then along `shape` to `end`, which is reached at `until`.
    With g the share of the way from `begin` to `until`, in [0, 1]:

    linear       start + (end - start) g
    cosine       start + (end - start) (1 - cos(pi g)) / 2
    exponential  start (end / start)^g
    steps        start (end / start)^(j / (n - 1)) with j = floor(n g): n values, each for the same
                 time, with a factor of about ten between two of them"""

    start: float
    end: float
    shape: str = "linear"
    begin: float = 0.0
    until: float = 1.0

    def __post_init__(self) -> None:
        geometric = self.shape in ("exponential", "steps")
        if not geometric and self.shape not in SHAPES:
            raise ValueError(f"unknown schedule shape '{self.shape}'")
        if not 0.0 <= self.begin <= self.until <= 1.0:
            raise ValueError("a schedule needs 0 <= begin <= until <= 1")
        if geometric and not (self.start > 0 and self.end > 0):
            article = "an exponential" if self.shape == "exponential" else "a steps"
            raise ValueError(f"{article} schedule needs positive ends")

    def at(self, fraction: float) -> float:
        span = self.until - self.begin
        passed = (fraction - self.begin) / span if span > 0 else float(fraction >= self.until)
        f = min(1.0, max(0.0, passed))
        if self.shape == "steps":
            steps = max(1, round(abs(math.log10(self.end / self.start))))
            f = min(steps, math.floor(f * (steps + 1))) / steps
        if self.shape in ("exponential", "steps"):
            value: float = self.start * (self.end / self.start) ** f
            return value
        return self.start + (self.end - self.start) * SHAPES[self.shape](f)


@dataclass(frozen=True)
class Steps:
    """`start`, multiplied by `factor` at each of the fractions `at_fractions` (docs/methods.md
    4.1)."""

    start: float
    at_fractions: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def at(self, fraction: float) -> float:
        return self.start * self.factor ** sum(fraction >= f for f in self.at_fractions)


def fraction(step: int, steps: int) -> float:
    """t / (T - 1) for step t = 0 .. T-1 of T: 0 at the first optimizer step, 1 at the last
    (docs/methods.md 0.1). It is 0 for a single step, at whose end a decayed learning rate would be
    0."""
    return step / (steps - 1) if steps > 1 else 0.0
