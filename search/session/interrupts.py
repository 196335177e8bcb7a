"""Makes ctrl-C, SIGTERM and a closing terminal end every verb in the same way, whenever they come.

A KeyboardInterrupt alone can get lost: Python drops exceptions that are raised while an object is
deleted, which happens within imports, and Ray aborts when its start is interrupted. So a request to
end is also stored in a flag, and delayed where it must be."""

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
# `timeout` signals the process and its group, and a closing terminal makes both kernel and shell
# send a signal: signals within this time are one request.
ECHO_SECONDS = 1.0

_asked = threading.Event()  # a KeyboardInterrupt was raised and may have got lost
_signalled = threading.Event()  # any of the signals came
_inside = False
_last_signal = -ECHO_SECONDS
_error: BaseException | None = None
_broken_off = False  # the signal was sent by `break_off`, not by a user
_terminals: list[int] = []


@contextmanager
def ending_gently() -> Iterator[None]:
    """Within this context any of the signals raises KeyboardInterrupt, even one that was ignored
    when the process started: shells ignore ctrl-C for background jobs. Only an ignored SIGHUP stays
    ignored, which is what `nohup` is for."""
    global _inside, _last_signal, _error, _broken_off
    if _inside:
        yield
        return

    def lost(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):  # it is in the flag
            hook(unraisable)

    _asked.clear()
    _signalled.clear()
    hook, sys.unraisablehook = sys.unraisablehook, lost
    try:
        with handlers_restored() as former:
            if _in_main_thread():
                _inside, _last_signal, _error = True, -ECHO_SECONDS, None
                _broken_off = False
                _terminals[:] = [number for number in (0, 1, 2) if _is_terminal(number)]
                signal.signal(signal.SIGINT, _interrupt)
                signal.signal(signal.SIGTERM, _terminate)
                if former[signal.SIGHUP] is not signal.SIG_IGN:
                    signal.signal(signal.SIGHUP, _terminate)
            yield
    finally:
        sys.unraisablehook = hook
        _asked.clear()
        if _in_main_thread():
            _inside = False


def _interrupt(_number: int, _frame: Any) -> None:
    if _fresh():
        _asked.set()
        raise KeyboardInterrupt


def _terminate(number: int, frame: Any) -> None:
    """Do what ctrl-C does, by calling its handler (Tune's while Tune runs). SIGINT is not sent,
    since Ray blocks it in its jobs."""
    if number == signal.SIGHUP:
        _let_go_of_terminals()
    handler = signal.getsignal(signal.SIGINT)
    if handler is not _interrupt and callable(handler):
        if _fresh():
            handler(signal.SIGINT, frame)
    else:
        _interrupt(number, frame)


def _fresh() -> bool:
    """Whether a signal is a new request. Raises the error that `break_off` left for this thread."""
    global _last_signal, _error
    if _error is not None:
        error, _error = _error, None
        raise error
    now = time.monotonic()
    if now - _last_signal < ECHO_SECONDS:
        return False
    _last_signal = now
    _signalled.set()
    return True


def _let_go_of_terminals() -> None:
    """Redirect output to /dev/null: writing to a closed terminal would be an error."""
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
    """Raise KeyboardInterrupt again where one was raised within `ending_gently` and got lost."""
    if _asked.is_set():
        raise KeyboardInterrupt


def asked_to_end() -> bool:
    """Whether a signal asked this process to end."""
    return _signalled.is_set()


def break_off(error: BaseException) -> bool:
    """Raise `error` in the main thread, from another one. False outside of `ending_gently`."""
    global _error, _broken_off
    ident = threading.main_thread().ident
    if not _inside or ident is None:
        return False
    _error, _broken_off = error, True
    signal.pthread_kill(ident, signal.SIGTERM)  # wakes it from whatever it waits for
    return True


@contextmanager
def held_back() -> Iterator[None]:
    """Delay the first signal to the end of this context; a second one is handled at once."""
    came: list[tuple[int, float]] = []

    def hold(number: int, _frame: Any) -> None:
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
    """Restore the handlers of the signals at the end, since Ray and Tune leave their own; yields
    the handlers by signal."""
    former: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield former
    finally:
        if _in_main_thread():
            for number, handler in former.items():
                if handler is not None:  # installed from C, cannot be restored
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
    """Call `say` at once when a signal asks the process to end. The handler itself may run later:
    Python calls it between two instructions of the main thread, which may be inside the start of
    Ray, and `held_back` delays it."""
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
    """Call `say` at the first signal; Python writes the number of each one to the socket."""
    said = False
    while number := signals.recv(1):
        if number[0] in SIGNALS and not _broken_off:
            _asked.set()  # Tune's own handler does not
            _signalled.set()
            if not said:
                say()
            said = True
