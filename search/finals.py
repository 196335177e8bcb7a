"""Final trainings of the points of a search, noted in its folder by `bitfront train`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from search.home import SearchFolder
from trainables.files import opened

FILE = "finals.jsonl"


@dataclass(frozen=True)
class FinalTraining:
    """One seed of one recipe."""

    recipe: str
    trial: str
    method: str
    plan: str
    seed: int
    epochs: int
    checkpoint: str
    seconds: float
    ended: float
    metrics: dict[str, float] = field(default_factory=dict)
    """on the test set"""

    @property
    def key(self) -> str:
        return f"{self.recipe}/{self.epochs}/{self.seed}"


def final_trainings(folder: SearchFolder) -> list[FinalTraining]:
    """The latest of every recipe and seed."""
    try:
        lines = (folder.path / FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    found = [FinalTraining(**json.loads(line)) for line in lines if line.strip()]
    return list({final.key: final for final in found}.values())


def note_finals(folder: SearchFolder, finals: list[FinalTraining]) -> Path:
    """Add them; the same one twice is kept twice and read once."""
    path = folder.path / FILE
    with opened(path) as out:
        for final in finals:
            out.write(json.dumps(asdict(final)) + "\n")
    return path
