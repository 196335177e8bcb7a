"""Ctrl-C and SIGTERM end a search in the same way, whenever they come.

A KeyboardInterrupt alone does not: Python drops what is raised while an object is deleted, which
happens within imports, and Ray aborts when its start is interrupted. So what was asked for is noted
too, and waits where it must."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# What ends a search as ctrl-C does, and what a closed terminal sends.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

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
        _asked.clear()


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


@contextmanager
def acknowledged(say: Callable[[], None]) -> Iterator[None]:
    """`say` is called within an instant of the first signal that asks the process to end. Its
    handler may have to wait: Python calls it between two lines of the main thread, which may be
    deep in the start of Ray, and `held_back` keeps it waiting on purpose."""
    if not _in_main_thread():
        yield
        return
    here, there = socket.socketpair()
    there.setblocking(False)
    former = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(here, say), name="signals", daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        there.close()
        listener.join()
        here.close()
        _asked.clear()


def _listen(signals: socket.socket, say: Callable[[], None]) -> None:
    """Python writes the number of every signal it handles."""
    told = False
    while number := signals.recv(1):
        if number[0] in ENDING:
            _asked.set()  # Tune's own handler does not
            if not told:
                say()
            told = True
