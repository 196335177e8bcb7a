"""The status line of a turn at a search: what it is doing, from the first second to the last.

On a terminal it stays below the messages; elsewhere it is printed from time to time, so that a log
is never silent for long. Nothing slow is imported here: it is shown before torch and Ray are
loaded."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from bitfront.search.durations import duration
from bitfront.search.session.interrupts import held_back
from bitfront.search.urls import redacted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

# Seconds without output where there is no terminal: a hundredth of the time so far, within these
# bounds.
SHORTEST_SILENCE = 1.7
LONGEST_SILENCE = 60.0
REFRESHES_A_SECOND = 8


def silence_after(seconds: float) -> float:
    """The longest time without output in a turn that has taken `seconds` so far."""
    return min(LONGEST_SILENCE, max(SHORTEST_SILENCE, seconds / 100))


class StatusLine:
    """Shows messages, and below them a text that is refreshed several times a second."""

    def __init__(self, quiet: bool = False, out: TextIO | None = None) -> None:
        self.quiet = quiet
        self.out = out or sys.stdout
        self.started = time.monotonic()
        self.ending = "ending ..."
        """what is printed after an interrupt"""
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
        """Show this text, with the time it takes, until something else is shown."""
        since = time.monotonic()

        def timed() -> str:
            seconds = time.monotonic() - since
            return f"{text} ..." + (f" {duration(seconds)}" if seconds >= 1 else "")

        self.watch(timed)
        if self._live is None:
            self.say(f"{text} ...")

    def watch(self, text: Callable[[], str], bar: Callable[[], Any] | None = None) -> None:
        """Show what `text` returns until something else is shown; on a terminal what `bar`
        draws."""
        self._text, self._bar, self._since = text, bar, time.monotonic()
        if self.quiet or self._closed.is_set():
            return
        if self.is_terminal:
            self._go_live()
        elif self._ticker is None:
            with held_back():  # a thread whose start is interrupted cannot be joined
                self._ticker = threading.Thread(target=self._tick, name="status line", daemon=True)
                self._ticker.start()

    def say(self, text: str) -> None:
        """Print a message above the line. Errors are ignored: a closed pipe, or a full disk under
        the log, must not end a search."""
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
        """Print that the turn was interrupted and what is done now."""
        self.say(f"interrupted: {self.ending}")

    def close(self) -> None:
        """End the line; messages are printed as before."""
        self._closed.set()
        if self._ticker is not None:
            self._ticker.join()
            self._ticker = None
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    # A terminal.

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal that can move its cursor."""
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
