"""What a person sees while a search runs: a table that fits the terminal, or plain lines where
the output is no terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from search.driver import Session

LINE_SECONDS = 10.0


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Progress:
    """Told of every change; decides itself when to show it."""

    def __init__(self, session: Session, quiet: bool = False, out: TextIO | None = None) -> None:
        self.session = session
        self.out = out or sys.stdout
        self.quiet = quiet
        self.live: Live | None = None
        self._started = time.monotonic()
        self._ended_before = session.ended
        self._last_line = 0.0

    def start(self) -> None:
        if self.quiet or not self.out.isatty():
            return
        from rich.console import Console
        from rich.live import Live

        self.live = Live(console=Console(file=self.out), get_renderable=self._table)
        self.live.start()

    def changed(self, ended: bool) -> None:
        """A trial reported (or ended). Plain lines come with ends, a few seconds apart."""
        if self.quiet or self.live is not None:
            return
        now = time.monotonic()
        if ended and (now - self._last_line >= LINE_SECONDS or self._last_line == 0.0):
            self._last_line = now
            self._print(self.line())

    def say(self, text: str) -> None:
        """Something to know once, above the table."""
        if self.live is not None:
            self.live.console.print(text)
        elif not self.quiet:
            self._print(text)

    def stop(self) -> None:
        if self.live is not None:
            self.live.stop()
        elif not self.quiet:
            self._print(self.line())

    def _print(self, text: str) -> None:
        """Nobody may be listening any more, or the disk of the log be full: no reason to end a
        search."""
        with contextlib.suppress(OSError):
            print(text, file=self.out, flush=True)

    def eta(self) -> float | None:
        done = self.session.ended - self._ended_before
        left = self.session.budget - self.session.ended
        if not done or left <= 0:
            return 0.0 if left <= 0 else None
        return (time.monotonic() - self._started) / done * left

    def line(self) -> str:
        s = self.session
        best = s.config.quality.text(s.best, 1)
        return (
            f"{s.ended}/{s.budget} trials, {s.running} running, {s.failed} failed"
            f" | best {best} | front {len(s.front)}"
            f" | hypervolume {100 * s.hypervolume_share:.1f} %"
            f" | {duration(time.monotonic() - self._started)}, ETA {duration(self.eta())}"
        )

    def _table(self) -> Table:
        from rich.table import Table

        s = self.session
        table = Table(title=f"search {s.config.name}", title_justify="left", expand=False)
        for column in ("trials", "running", "failed", "best", "front", "hypervolume", "ETA"):
            table.add_column(column, justify="right")
        best = s.config.quality.text(s.best, 1)
        table.add_row(
            f"{s.ended}/{s.budget}",
            str(s.running),
            str(s.failed),
            best,
            f"{len(s.front)} points",
            f"{100 * s.hypervolume_share:.1f} %",
            duration(self.eta()),
        )
        return table
