"""`search.inherit`: trials that start from the weights of a finished one, and which cannot."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from bitfront.trainables.methods import METHODS
from bitfront.trainables.methods.base import Method
from bitfront.trainables.settings import Strict


class InheritSpec(Strict):
    """A new point is first trained for a fraction of its epochs from the weights of the finished
    trial that is nearest: a look. Points whose looks promise most are then trained from scratch;
    only that counts."""

    epochs: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """share of a trial's epochs that a look trains"""
    least: Annotated[int, Field(ge=1)] = 4
    """trials that are trained from scratch before any inherits, and looks that are trained from
    scratch before looks are believed"""
    control: Annotated[float, Field(ge=0, le=1)] = 0.1
    """share of looks that are trained from scratch whatever they promise, to measure what looks
    tell"""
    weights: Annotated[int, Field(ge=1)] = 50
    """finished trials whose weights are kept, the latest"""
    gb: Annotated[float, Field(gt=0)] = 10.0
    """size of these weights together, likewise"""

    def epochs_of(self, whole: int) -> int:
        """The epochs of a look, of a trial with so many."""
        return min(math.ceil(self.epochs * whole), whole - 1)


def why_not(name: str) -> str | None:
    """Why trials of a method are trained from scratch alone; None where they may inherit. What a
    method keeps besides the weights of a network is not passed on."""
    method = METHODS.get(name)
    if method.adversary is not None:
        return "it trains against attacks"
    if method.starts_from is not Method.starts_from or not method.from_weights:
        return "it has starting weights of its own"
    if method.kept is not Method.kept or method.kept_channels is not Method.kept_channels:
        return "it prunes"
    if method.own_optimizer is not Method.own_optimizer:
        return "its latents have an optimizer of their own"
    return "it trains in phases" if method.phases is not Method.phases else None
