"""Long work that reports no epochs of its own (shared stages, selectors) says how far it is; who
listens decides where that goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(text: str) -> None:
    listener = _listener.get()
    if listener is not None:
        listener(text)
