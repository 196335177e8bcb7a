"""The live line of a turn at a search: what it is doing, from the first second to the last.

On a terminal it moves below what has been said; elsewhere it is printed now and then, so that a
log is never silent for long. Nothing heavy is imported here: it is there before torch and Ray."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from bitfront.search.urls import redacted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

# How long nothing may be said where there is no terminal: a hundredth of the time so far, within
# these.
SHORTEST_SILENCE = 1.7
LONGEST_SILENCE = 60.0
REFRESHES_A_SECOND = 8


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def silence_after(seconds: float) -> float:
    """How long nothing may be said once a turn has taken so long."""
    return min(LONGEST_SILENCE, max(SHORTEST_SILENCE, seconds / 100))


class StatusLine:
    """Told what is being waited for, or whom to ask how far it is."""

    def __init__(self, quiet: bool = False, out: TextIO | None = None) -> None:
        self.quiet = quiet
        self.out = out or sys.stdout
        self.started = time.monotonic()
        self.ending = "ending ..."
        """what is done when somebody interrupts"""
        self._console: Console | None = None
        self._live: Live | None = None
        self._text: Callable[[], str] = lambda: ""
        self._bar: Callable[[], Any] | None = None
        self._since = self._said = self.started
        self._lock = threading.Lock()
        self._ticker: threading.Thread | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def wait(self, text: str) -> None:
        """From now on this is what is being done."""
        since = time.monotonic()

        def told() -> str:
            seconds = time.monotonic() - since
            return f"{text} ..." + (f" {duration(seconds)}" if seconds >= 1 else "")

        self.watch(told)
        if self._live is None:
            self.say(f"{text} ...")

    def watch(self, text: Callable[[], str], bar: Callable[[], Any] | None = None) -> None:
        """From now on `text` says how far things are; `bar` draws it on a terminal."""
        self._text, self._bar, self._since = text, bar, time.monotonic()
        if self.quiet or self._closed.is_set():
            return
        if self._is_terminal():
            self._go_live()
        elif self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="status line", daemon=True)
            self._ticker.start()

    def say(self, text: str) -> None:
        """Something that stays, above the line. Nobody may be listening any more, or the disk of
        the log be full: no reason to end a search."""
        if self.quiet:
            return
        self._said = time.monotonic()
        with contextlib.suppress(OSError), self._lock:
            if self._live is not None:
                shown = redacted(text)
                self._live.console.print(shown, markup=False, highlight=False, soft_wrap=True)
            else:
                print(redacted(text) + "\n", end="", file=self.out, flush=True)  # one write

    def interrupted(self) -> None:
        self.say(f"interrupted: {self.ending}")

    def close(self) -> None:
        """Nothing moves any more; what is said is printed as it is."""
        self._closed.set()
        if self._ticker is not None:
            self._ticker.join()
            self._ticker = None
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    # A terminal.

    def _is_terminal(self) -> bool:
        """Of the kind that can move a line."""
        try:
            if not self.out.isatty():
                return False
        except ValueError:  # closed
            return False
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self.out)
        return not self._console.is_dumb_terminal

    def _go_live(self) -> None:
        if self._live is not None:
            return
        from rich.live import Live
        from rich.spinner import Spinner

        spinner = Spinner("dots")

        def shown() -> Any:
            if self._bar is not None:
                return self._bar()
            spinner.update(text=redacted(self._text()))
            return spinner

        self._live = Live(
            console=self._console,
            get_renderable=shown,
            refresh_per_second=REFRESHES_A_SECOND,
            transient=True,
        )
        self._live.start()

    # Anything else.

    def _tick(self) -> None:
        while True:
            now = time.monotonic()
            due = max(self._said, self._since) + silence_after(now - self.started)
            if now >= due:
                self.say(self._text())
            elif self._closed.wait(due - now):
                return
