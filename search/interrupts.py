"""Ctrl-C and SIGTERM end a search in the same way, whenever they come.

A KeyboardInterrupt alone does not: Python drops what is raised while an object is deleted, which
happens within imports, and Ray aborts when its start is interrupted. So what was asked for is noted
too, and waits where it must."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_asked = threading.Event()


@contextmanager
def ending_gently() -> Iterator[None]:
    """SIGTERM, from `bitfront stop` or a scheduler that takes the machine back, is a ctrl-C within.
    Its handler is called, not the signal sent: Ray blocks that one in its jobs."""

    def interrupt(number: int, frame: Any) -> None:
        _asked.set()
        raise KeyboardInterrupt

    def terminate(number: int, frame: Any) -> None:
        handler = signal.getsignal(signal.SIGINT)
        # Started in the background, ctrl-C is ignored. Within Tune its handler is Tune's.
        (handler if callable(handler) else interrupt)(signal.SIGINT, frame)

    def lost(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):  # that one is noted
            told(unraisable)

    _asked.clear()
    told, sys.unraisablehook = sys.unraisablehook, lost
    try:
        with handlers_restored() as former:
            if _in_main_thread():
                signal.signal(signal.SIGTERM, terminate)
                if callable(former[signal.SIGINT]):
                    signal.signal(signal.SIGINT, interrupt)
            yield
    finally:
        sys.unraisablehook = told


def obey() -> None:
    """Raise KeyboardInterrupt again, if one was raised within `ending_gently` and got lost."""
    if _asked.is_set():
        raise KeyboardInterrupt


@contextmanager
def held_back() -> Iterator[None]:
    """The first ctrl-C or SIGTERM waits for the end of this; the second one does not."""
    came: list[int] = []

    def hold(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            _deliver(number, former[number])

    with handlers_restored() as former:
        if _in_main_thread():
            for number, handler in former.items():
                if handler is not signal.SIG_IGN:
                    signal.signal(number, hold)
        yield
    if came:
        _deliver(came[0], former[came[0]])


@contextmanager
def handlers_restored() -> Iterator[dict[int, Any]]:
    """Ctrl-C and SIGTERM do again in the end what they did before, which is told: Ray and Tune
    leave handlers of their own."""
    former: dict[int, Any] = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield former
    finally:
        if _in_main_thread():
            for number, handler in former.items():
                if handler is not None:  # not Python's
                    signal.signal(number, handler)


def _deliver(number: int, handler: Any) -> None:
    if callable(handler):
        handler(number, None)
    else:
        signal.signal(number, handler)
        signal.raise_signal(number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
