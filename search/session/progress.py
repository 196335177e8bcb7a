"""The interfaces through which a turn at a search shows what it does. What people see of it is made
in `bitfront.terminal`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from bitfront.search.ledger.entry import Entry

if TYPE_CHECKING:
    from bitfront.search.session.session import Session

# What a turn waits for until more is known.
WORKERS_START = "workers start"


class Line(Protocol):
    """A line that shows what a turn is doing, from its first second to its last."""

    quiet: bool

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End the line; messages are printed as before."""

    def wait(self, text: str) -> None:
        """Show this text, with the time it takes, until something else is shown."""

    def watch(self, text: Callable[[], str]) -> None:
        """Show what `text` returns until something else is shown."""

    def say(self, text: str) -> None:
        """Print a message above the line."""


class Progress(Protocol):
    """Receives every change of a session."""

    def wait(self, text: str) -> None:
        """Show what is being done from now on."""

    def say(self, text: str) -> None:
        """Print a message."""

    def expect(self, trial_seconds: float | None, slots: int) -> None:
        """Set the estimated seconds per trial, and how many trials run at once."""

    def eta(self) -> float | None:
        """The estimated seconds to the end of the search; None where that is not known."""

    def start(self) -> None:
        """Note that trials run from now on."""

    def changed(
        self, ended: Entry | None = None, reported: tuple[Entry, dict[str, Any]] | None = None
    ) -> None:
        """Note that a trial ended, or that one reported an epoch."""

    def nodes(self, there: Sequence[str], lost: Sequence[str]) -> None:
        """Note which nodes trials can run on now, and which ones are gone."""

    def look(self) -> None:
        """Called several times a second while trials run."""

    def stop(self) -> None:
        """Note that no trial runs any more."""


class Silent:
    """Shows nothing."""

    def __init__(self, session: Session) -> None:
        """Ignore the session."""

    def wait(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def expect(self, trial_seconds: float | None, slots: int) -> None: ...

    def eta(self) -> float | None:
        return None

    def start(self) -> None: ...

    def changed(
        self, ended: Entry | None = None, reported: tuple[Entry, dict[str, Any]] | None = None
    ) -> None: ...

    def nodes(self, there: Sequence[str], lost: Sequence[str]) -> None: ...

    def look(self) -> None: ...

    def stop(self) -> None: ...
