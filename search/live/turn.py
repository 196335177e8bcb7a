"""What a driver's turn is doing now, as a file beside the ledger: small, written anew about once a
second, gone when the turn ends. Nothing but pages depends on it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.text_files import read_json

FILE = "turn.json"
# Of more running trials or epochs the file has a part only.
MOST_TRIALS, MOST_EPOCHS = 200, 100


@dataclass(frozen=True)
class Running:
    """A trial that is being trained."""

    node: str
    """the host of its worker; empty where that is not known"""
    epochs: int
    """how many it will have"""
    curve: Sequence[tuple[int, float]]
    """(epoch, quality)"""

    @property
    def epoch(self) -> int:
        """The last epoch that was reported."""
        return self.curve[-1][0] if self.curve else 0


@dataclass(frozen=True)
class Turn:
    """A driver's turn at one moment."""

    written: float
    left: float | None = None
    """the estimated seconds to the end of the search"""
    per_hour: float | None = None
    """trials that end in an hour, at the rate of this turn"""
    waits: str = ""
    """what it waits for, where no trial has reported yet"""
    nodes: Sequence[str] = ()
    lost: Sequence[str] = ()
    """nodes that were there and are gone"""
    running: Mapping[str, Running] = field(default_factory=dict)
    """by trial; those that have reported an epoch"""


def thinned(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `MOST_EPOCHS` of the epochs, the last one among them."""
    step = -(-len(curve) // MOST_EPOCHS) or 1
    return list(reversed(list(curve)[::-1][::step]))


def write_turn(folder: Path, turn: Turn) -> None:
    """Write the file of a turn."""
    running = {
        trial: {"node": r.node, "epochs": r.epochs, "curve": thinned(r.curve)}
        for trial, r in turn.running.items()
    }
    write_atomically(folder / FILE, json.dumps({**vars(turn), "running": running}))


def read_turn(folder: Path) -> Turn | None:
    """The turn of a search; None where there is none, or where its file is damaged."""
    try:
        data = read_json(folder / FILE)
        running = {
            str(trial): Running(
                str(r["node"]),
                int(r["epochs"]),
                [(int(e), float(v)) for e, v in r["curve"] if math.isfinite(v)],
            )
            for trial, r in data["running"].items()
        }
        return Turn(
            float(data["written"]),
            _number(data["left"]),
            _number(data["per_hour"]),
            str(data["waits"]),
            [str(node) for node in data["nodes"]],
            [str(node) for node in data["lost"]],
            running,
        )
    except (UserError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
