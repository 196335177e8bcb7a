"""The progress of `bitfront train`: a bar over the epochs on a terminal, plain lines elsewhere.
What is reported is defined in `bitfront.search.recipes.training_progress`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from bitfront.search.durations import duration
from bitfront.search.recipes.training_progress import EpochReport

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from bitfront.search.recipes.recipe import Recipe


class TrainingProgress:
    """Shows the epochs of a final training as a bar on a terminal, else as lines passed to
    `say`."""

    def __init__(
        self,
        say: Callable[[str], None],
        out: TextIO | None = None,
        heed: Callable[[], None] = lambda: None,
    ) -> None:
        """There is a bar where `out` is a terminal. `heed` is called after every epoch, and may
        raise a KeyboardInterrupt that was lost before (`search.session.interrupts.obey`)."""
        self.say = say
        self.out = out
        self.heed = heed
        self.last: EpochReport | None = None
        self._seeds = 0
        self._expected = ""
        self._began: dict[int, int] = {}
        self._started = time.monotonic()
        self._epochs = 0
        self._bar: Bar | None = None
        self._task: Any = None

    def start(self, recipe: Recipe, seeds: int) -> None:
        """Begin to show the training of `seeds` seeds."""
        self._seeds = seeds
        reached = recipe.expected.get(recipe.quality.name)
        if reached is not None:
            self._expected = f"{recipe.quality.text(reached, 1)} validation in the search"
        if self.out is None or not self.out.isatty() or not seeds:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("epochs  {task.fields[told]}"),
            console=Console(file=self.out),
            expand=True,
        )
        if self._expected:
            self.note(f"to be reached: {self._expected}")
        self._task = self._bar.add_task("reading data", total=None, told="")
        self._bar.start()

    def note(self, text: str) -> None:
        """Print a message above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            self.say(text)

    def epoch(self, report: EpochReport) -> None:
        self.last = report
        if report.seed not in self._began:  # epochs of an earlier run say nothing about the speed
            self._began[report.seed] = report.done
            if len(self._began) == 1:
                self._started = time.monotonic()
        else:
            self._epochs += 1
        eta = self.eta()
        if self._bar is None:
            if report.loss is not None:
                self.say(report.text() + (f", ETA {duration(eta)}" if eta else ""))
        else:
            self._show(report, eta)
        self.heed()

    def eta(self) -> float | None:
        """Seconds until all seeds are trained, at the speed so far; None before the first epoch."""
        if not self._epochs or self.last is None:
            return None
        later = (self._seeds - len(self._began)) * self.last.epochs
        left = self.last.epochs - self.last.done + max(0, later)
        return (time.monotonic() - self._started) / self._epochs * left

    def _show(self, report: EpochReport, eta: float | None) -> None:
        assert self._bar is not None
        parts = [] if report.loss is None else [f"loss {report.loss:.3f}"]
        if report.accuracy is not None:
            parts.append(f"train acc {100 * report.accuracy:.1f} %{report.state_of_weights}")
        if report.validation is not None:
            parts.append(f"validation {report.validation:.4g}")
        parts.append(f"ETA {duration(eta)}")
        place = f" ({len(self._began)} of {self._seeds})" if self._seeds > 1 else ""
        self._bar.update(
            self._task,
            description=f"seed {report.seed}{place}",
            completed=report.done,
            total=report.epochs,
            told="  ".join(parts),
        )

    def kept(self) -> str:
        """The sentence after an interrupt: what is kept, and how to continue."""
        report = self.last
        done = (
            f"seed {report.seed} after epoch {report.done} of {report.epochs}"
            if report
            else "nothing"
        )
        return f"{done}; the same command goes on from there"

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
