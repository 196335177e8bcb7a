"""A study is a list of steps, each with one kept file: a step whose file is there is done. What a
step needs on the way (ledgers, checkpoints) is in a home of the study: interrupted, it continues
from there."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Any

from bitfront.search.cluster.head import INTERRUPTED
from bitfront.search.durations import duration
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically

STUDIES = Path(__file__).parent
# Images of no use, for a rehearsal.
MADE_UP = f"{STUDIES / 'made_up.py'}:images"


@dataclass(frozen=True)
class Place:
    """Where a study runs: its YAMLs, its kept files and page, its home."""

    name: str
    out: Path
    home: Path
    rehearsal: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the study in the repository."""
        return STUDIES / self.name

    @property
    def kept(self) -> Path:
        return self.out / "kept"

    def file(self, step: str) -> Path:
        """The file that a step keeps."""
        return self.kept / f"{step}.json"

    def has(self, step: str) -> bool:
        return self.file(step).exists()

    def keep(self, step: str, content: Mapping[str, Any]) -> None:
        """Write what a step keeps, which ends it."""
        path = self.file(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"{json.dumps(content, indent=1)}\n".encode())

    def read(self, step: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.file(step).read_text(encoding="utf-8"))
        return content

    def work(self, step: str) -> Path:
        """A folder for what a step needs on the way."""
        path = self.home / step
        path.mkdir(parents=True, exist_ok=True)
        return path

    def bitfront(self, *words: object, cwd: Path | None = None, asked: bool = False) -> str:
        """Run a command of bitfront in the home of the study; what it printed, if `asked`."""
        return run([sys.executable, "-m", "bitfront", *map(str, words)], self.home, cwd, asked)


def run(command: Sequence[str], home: Path, cwd: Path | None = None, asked: bool = False) -> str:
    """Run a command in a process of its own, on one thread unless it says otherwise; an interrupt
    reaches it too. What it printed, if `asked`."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "BITFRONT_HOME": str(home.absolute())}
    paths = [str(STUDIES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE if asked else None,
        text=True,
        check=False,
    )
    if done.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode:
        raise UserError(f"exit code {done.returncode}: {shlex.join(command)}")
    return done.stdout or ""


def cores() -> int:
    """That this process may use: of a machine that is shared, those it was given."""
    return len(os.sched_getaffinity(0))


Settings = Callable[[Place], Sequence[str]]
"""what of a YAML depends on the steps before"""


@dataclass(frozen=True)
class Step:
    """A part of a study that keeps one file."""

    name: str
    what: str
    minutes: float
    """of one core, estimated for the full size"""
    run: Callable[[Place], None]
    """does it, or what is left of it, and keeps the file"""
    alone: bool = True
    """whether it uses every core; others run beside each other, one core each"""
    repeats: bool = False
    """whether it is an earlier one with another seed, which needs no rehearsal"""


@dataclass(frozen=True)
class Study:
    """Steps in the order in which they tell most, and what the page is made of."""

    name: str
    steps: Sequence[Step]
    blocks: Mapping[str, Callable[[Place], str]]
    """parts of the page by name, from kept files"""
    draw: Callable[[Place], None] = field(default=lambda _place: None)
    """its figures, from kept files"""

    def left(self, place: Place) -> list[Step]:
        return [s for s in self.steps_of(place) if not place.has(s.name)]

    def steps_of(self, place: Place) -> list[Step]:
        return [s for s in self.steps if not (s.repeats and place.rehearsal)]

    def train(self, place: Place, said: Callable[[str], None] = print) -> None:
        """Do the steps that are left."""
        place.home.mkdir(parents=True, exist_ok=True)
        ended = Event()
        for alone, group in groupby(self.left(place), lambda step: step.alone):
            with ThreadPoolExecutor(1 if alone else cores()) as pool:
                doing = [pool.submit(_do, step, place, said, ended) for step in group]
                try:
                    for each in doing:
                        each.result()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise

    def plan(self, place: Place) -> str:
        """The steps, what is done, and how long the others take."""
        lines = []
        for step in self.steps_of(place):
            state = "done" if place.has(step.name) else f"{step.minutes:.0f} min"
            lines.append(f"{step.name:28} {state:>8}  {step.what}")
        minutes = sum(step.minutes for step in self.left(place))
        left = f"{duration(60 * minutes)} of one core, about {duration(60 * minutes / cores())}"
        return "\n".join([*lines, f"left: {left} on {cores()} that do nothing else"])


def settings_of(changes: Sequence[str]) -> list[str]:
    """Settings as words of a command."""
    return [word for change in changes for word in ("--set", change)]


def _do(step: Step, place: Place, said: Callable[[str], None], ended: Event) -> None:
    """Do a step, unless an earlier one was interrupted or failed: a pool takes up the next one
    before anybody hears of that."""
    if ended.is_set():
        return
    said(f"{place.name}: {step.name}: {step.what}")
    try:
        step.run(place)
    except BaseException:
        ended.set()
        raise
