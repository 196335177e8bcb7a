"""`search.pause`: trials that rest at a rung and are taken up again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bitfront.trainables.settings import Strict


class PauseSpec(Strict):
    """Trials rest at a fraction of their training; those that promise most are taken up again."""

    rungs: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)] = Field(
        default_factory=lambda: [0.3]
    )
    """fractions of a trial's training at which it may rest"""
    least: Annotated[int, Field(ge=2)] = 8
    """trials that run to their end before any rests"""
    control: Annotated[float, Field(ge=0, le=1)] = 0.1
    """share of trials that never rest, to measure what rungs tell of the end"""
    checkpoints: Annotated[int, Field(ge=1)] = 50
    """trials that rest at a time; of more the one that promises least is stopped"""
    gb: Annotated[float, Field(gt=0)] = 10.0
    """size of their checkpoints together, likewise"""
