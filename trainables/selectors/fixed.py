"""Selectors that use nothing but the position of a layer (docs/methods.md 4.5)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bitfront.trainables.cost import CostTable
from bitfront.trainables.selectors.base import SELECTORS, Selector


@SELECTORS.register
class First(Selector):
    name = "first"
    aliases = ("front",)
    doc = "binarize the first layers, from the input side"

    def order(self, table: CostTable, seed: int) -> Sequence[int]:
        return range(len(table.plan_layers))


@SELECTORS.register
class Last(Selector):
    name = "last"
    aliases = ("rear",)
    doc = "binarize the last layers, from the output side"

    def order(self, table: CostTable, seed: int) -> Sequence[int]:
        return range(len(table.plan_layers))[::-1]


@SELECTORS.register
class Random(Selector):
    name = "random"
    doc = "binarize in a random order"

    def order(self, table: CostTable, seed: int) -> Sequence[int]:
        order = list(range(len(table.plan_layers)))
        random.Random(seed).shuffle(order)
        return order
