"""The stock combination as an arm of a study: as many trials as a search has, and what they gave.
They are trained by a process of its own, studies/tuning.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitfront.trainables.errors import UserError
from studies.steps import Place, Settings, Step, run, settings_of

ROWS = "trials.jsonl"
# Trials in a rehearsal.
REHEARSED = 3
Row = dict[str, Any]


def read(folder: Path) -> list[Row]:
    """The trials that ended."""
    file = folder / ROWS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def command(file: Path, folder: Path, changes: Sequence[str], *limit: object) -> list[str]:
    words = [str(file), str(folder), *map(str, limit), *settings_of(changes)]
    return [sys.executable, "-m", "studies.tuning", *words]


def stock(
    name: str,
    file: str,
    what: str,
    minutes: float,
    trials: int,
    rehearsed: Sequence[str],
    settings: Settings,
) -> Step:
    """As many trials of the stock combination as a search has."""

    def do(place: Place) -> None:
        folder = place.work(name)
        count = REHEARSED if place.rehearsal else trials
        changes = [*settings(place), *(rehearsed if place.rehearsal else ())]
        words = command(place.folder / file, folder.absolute(), changes, "--trials", count)
        while (before := len(read(folder))) < count:  # a trial that failed is no trial
            run(words, place.home)
            if len(read(folder)) == before:
                raise UserError(f"no trial of the stock combination ended: {folder}")
        place.keep(name, {"trials": read(folder)})

    return Step(name, what, minutes, do)
