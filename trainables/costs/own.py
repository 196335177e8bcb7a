"""Costs of the user's own: a function of one layer at its level (`PlannedLayer`), summed over the
layers of a network.

    def cycles(layer):
        return layer.macs / 64 if layer.letter == "B" else layer.macs"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from bitfront.trainables.costs.base import COSTS, Cost, PlannedLayer
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code.loading import about, blamed
from bitfront.trainables.own_code.reference import called, shown
from bitfront.trainables.own_code.signatures import arguments, summary


@COSTS.adopts
def adopt(found: Any, reference: str) -> Cost:
    """The cost that an object of the user's own stands for; its name is the last one of the
    reference, so that it is known without running code."""
    name = called(reference)
    if isinstance(found, Cost):
        return replace(found, name=name)
    needed = [a for a in arguments(found) if a.default is a.empty] if callable(found) else []
    if len(needed) != 1:
        raise UserError(
            f"{shown(reference)} is no cost", "write def cycles(layer), which returns a number"
        )
    doc = summary(found)

    def of_layer(planned: PlannedLayer) -> float:
        with blamed(reference, f"cannot price layer {planned.layer.name}"):
            value = float(found(planned))
        if not math.isfinite(value) or value < 0:
            with about(reference):
                raise UserError(f"{value:g} is no cost of layer {planned.layer.name}")
        return value

    return Cost(name, label=doc or name, doc=doc, of_layer=of_layer)
