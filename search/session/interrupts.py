"""Ctrl-C, SIGTERM and a terminal that closes end every verb in the same way, whenever they come.

A KeyboardInterrupt alone does not: Python drops what is raised while an object is deleted, which
happens within imports, and Ray aborts when its start is interrupted. So what was asked for is noted
too, and waits where it must."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# `timeout` sends to us and to our group, a closing terminal's kernel and shell both send: what
# follows within this time is the same request.
ECHO_SECONDS = 1.0

_asked = threading.Event()  # a KeyboardInterrupt was raised, and may have got lost
_told = threading.Event()  # any of the signals came
_inside = False
_heard = -ECHO_SECONDS
_error: BaseException | None = None
_broken_off = False  # by ourselves: that signal is nobody's request
_terminals: list[int] = []


@contextmanager
def ending_gently() -> Iterator[None]:
    """Any of the signals is a KeyboardInterrupt within, even where it was ignored when we were
    started: shells do that to ctrl-C for what runs in the background. Only a SIGHUP that is ignored
    stays so, which is what `nohup` is for."""
    global _inside, _heard, _error, _broken_off
    if _inside:
        yield
        return

    def lost(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):  # that one is noted
            told(unraisable)

    _asked.clear()
    _told.clear()
    told, sys.unraisablehook = sys.unraisablehook, lost
    try:
        with handlers_restored() as former:
            if _in_main_thread():
                _inside, _heard, _error = True, -ECHO_SECONDS, None
                _broken_off = False
                _terminals[:] = [number for number in (0, 1, 2) if _is_terminal(number)]
                signal.signal(signal.SIGINT, _interrupt)
                signal.signal(signal.SIGTERM, _terminate)
                if former[signal.SIGHUP] is not signal.SIG_IGN:
                    signal.signal(signal.SIGHUP, _terminate)
            yield
    finally:
        sys.unraisablehook = told
        _asked.clear()
        if _in_main_thread():
            _inside = False


def _interrupt(number: int, frame: Any) -> None:
    if _fresh():
        _asked.set()
        raise KeyboardInterrupt


def _terminate(number: int, frame: Any) -> None:
    """A ctrl-C within. Its handler is called, not the signal sent: Ray blocks that one in its jobs.
    Within Tune that handler is Tune's."""
    if number == signal.SIGHUP:
        _let_go_of_terminals()
    handler = signal.getsignal(signal.SIGINT)
    if handler is not _interrupt and callable(handler):
        if _fresh():
            handler(signal.SIGINT, frame)
    else:
        _interrupt(number, frame)


def _fresh() -> bool:
    """Whether a signal is a request of its own. Raises what `break_off` has for the main thread."""
    global _heard, _error
    if _error is not None:
        error, _error = _error, None
        raise error
    now = time.monotonic()
    if now - _heard < ECHO_SECONDS:
        return False
    _heard = now
    _told.set()
    return True


def _let_go_of_terminals() -> None:
    """Whatever is written to a terminal that was closed would be an error."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in _terminals:
            os.dup2(nowhere, number)
        os.close(nowhere)


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False


def obey() -> None:
    """Raise KeyboardInterrupt again, if one was raised within `ending_gently` and got lost."""
    if _asked.is_set():
        raise KeyboardInterrupt


def asked_to_end() -> bool:
    """Whether a signal asked us to end."""
    return _told.is_set()


def break_off(error: BaseException) -> bool:
    """Raise `error` in the main thread, from another one. False where nobody there expects it."""
    global _error, _broken_off
    ident = threading.main_thread().ident
    if not _inside or ident is None:
        return False
    _error, _broken_off = error, True
    signal.pthread_kill(ident, signal.SIGTERM)  # wakes it from whatever it waits for
    return True


@contextmanager
def held_back() -> Iterator[None]:
    """The first of the signals waits for the end of this; the second one does not."""
    came: list[tuple[int, float]] = []

    def hold(number: int, frame: Any) -> None:
        now = time.monotonic()
        if came and now - came[-1][1] < ECHO_SECONDS:
            return
        came.append((number, now))
        if len(came) > 1:
            _deliver(number, former[number])

    with handlers_restored() as former:
        if _in_main_thread():
            for number, handler in former.items():
                if handler is not signal.SIG_IGN:
                    signal.signal(number, hold)
        yield
    if came:
        number = came[0][0]
        _deliver(number, former[number])


@contextmanager
def handlers_restored() -> Iterator[dict[int, Any]]:
    """The signals do again in the end what they did before, which is told: Ray and Tune leave
    handlers of their own."""
    former: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
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
        if number[0] in SIGNALS and not _broken_off:
            _asked.set()  # Tune's own handler does not
            _told.set()
            if not told:
                say()
            told = True
