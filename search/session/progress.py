"""The interface between a running session and what people see of it, which is made in
`bitfront.terminal`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bitfront.search.ledger.entry import Entry

if TYPE_CHECKING:
    from bitfront.search.session.session import Session


class Progress(Protocol):
    """Gets every change of a session."""

    def wait(self, text: str) -> None:
        """Show what is being done from now on."""

    def say(self, text: str) -> None:
        """Print a message."""

    def expect(self, trial_seconds: float | None, slots: int) -> None:
        """Take an estimate of the seconds of a trial, and how many run at once."""

    def start(self) -> None:
        """Trials run from now on."""

    def changed(
        self, ended: Entry | None = None, reported: tuple[Entry, dict[str, Any]] | None = None
    ) -> None:
        """A trial ended, or reported an epoch."""

    def stop(self) -> None:
        """No trial runs any more."""


class Silent:
    """Shows nothing."""

    def __init__(self, session: Session) -> None:
        """The session makes no difference."""

    def wait(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def expect(self, trial_seconds: float | None, slots: int) -> None: ...

    def start(self) -> None: ...

    def changed(
        self, ended: Entry | None = None, reported: tuple[Entry, dict[str, Any]] | None = None
    ) -> None: ...

    def stop(self) -> None: ...
