"""Progress in a notebook: where a terminal has its bar, a text below the cell that is replaced."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from bitfront.search.recipes.training_progress import EpochReport
from bitfront.search.session.interrupts import held_back
from bitfront.search.urls import redacted
from bitfront.terminal.status_line import StatusLine
from bitfront.terminal.training_progress import TrainingProgress

REFRESH_SECONDS = 0.5


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook. Looks only at what is imported already."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return found is not None and getattr(found, "kernel", None) is not None


def status_line(quiet: bool) -> StatusLine:
    """The status line of a turn: in a notebook one that is replaced in place."""
    return NotebookLine() if in_notebook() and not quiet else StatusLine(quiet)


class Replaced:
    """A text below the cell that runs; each `show` replaces the one before."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, text: str) -> None:
        """Show this text; '' removes it."""
        if text == self._shown:
            return
        self._shown = text
        from IPython.display import display

        data = {"text/plain": redacted(text)}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class NotebookLine(StatusLine):
    """The status line below a cell. Messages are printed once each, as elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._below = Replaced()
        self._now: Callable[[], str] = lambda: ""
        self._ended = threading.Event()
        self._drawer: threading.Thread | None = None

    def wait(self, text: str) -> None:
        self.watch(lambda: f"{text} ...")

    def watch(self, text: Callable[[], str], bar: Callable[[], Any] | None = None) -> None:
        self._now = text
        if self._ended.is_set():
            return
        self._below.show(text())
        if self._drawer is None:
            with held_back():  # a thread whose start is interrupted cannot be joined
                self._drawer = threading.Thread(target=self._draw, name="status line", daemon=True)
                self._drawer.start()

    def close(self) -> None:
        self._ended.set()
        if self._drawer is not None:
            self._drawer.join()
            self._drawer = None
            self._below.show("")
        super().close()

    def _draw(self) -> None:
        while not self._ended.wait(REFRESH_SECONDS):
            with contextlib.suppress(Exception):  # what is shown must not end a search
                self._below.show(self._now())


class NotebookTraining(TrainingProgress):
    """The progress of a final training below a cell: a line per epoch, replaced in place."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self._below = Replaced()

    def epoch(self, report: EpochReport) -> None:
        told, self.say = self.say, self._below.show
        try:
            super().epoch(report)
        finally:
            self.say = told

    def stop(self) -> None:
        super().stop()
        self._below.show("")


def training_progress(say: Callable[[str], None], quiet: bool) -> TrainingProgress:
    """The progress of a final training that was started from Python."""
    if quiet:
        return TrainingProgress(lambda _text: None)
    return NotebookTraining(say) if in_notebook() else TrainingProgress(say, sys.stdout)
