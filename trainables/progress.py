"""Progress messages of work that reports no epochs of its own (pretraining, selectors): `report`
passes a message to the function that `reporting_to` has set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Receiver = Callable[[str], None]

_receiver: ContextVar[Receiver | None] = ContextVar("receiver", default=None)


@contextmanager
def reporting_to(receiver: Receiver) -> Iterator[None]:
    """Inside, `receiver` is called with every text that `report` is given."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)


def report(text: str) -> None:
    """Pass the text to the present receiver; without one nothing happens."""
    receiver = _receiver.get()
    if receiver is not None:
        receiver(text)
