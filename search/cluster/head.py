"""The processes of Ray a driver depends on. Those it starts live in sessions of their own, out of
the reach of signals meant for the driver, and end with it; when the head dies the driver says so,
where Ray would wait for a minute and end the process with a line of its own."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from bitfront.search.cluster.guard import Guard
from bitfront.search.session.interrupts import SIGNALS, asked_to_end, break_off

if TYPE_CHECKING:
    import subprocess

# Without these Ray is lost; its monitors may go.
NEEDED = ("gcs_server", "raylet")
LOOK_SECONDS = 0.2
JOINED_LOOK_SECONDS = 2.0
CONNECT_SECONDS = 5.0
# So many refusals in a row are no accident.
REFUSALS = 3
# What ends the head of a cluster may ask us to end too, which then counts.
SIGNAL_SECONDS = 0.5
# How long the main thread may take to hear of it: it hears nothing while Ray's C++ waits.
HEARING_SECONDS = 5.0
# Ray's own name of how long it waits for its head, in seconds.
RECONNECTING = "RAY_gcs_rpc_server_reconnect_timeout_s"
INTERRUPTED = 130
LOST = 1

Look = Callable[[], "str | None"]


class HeadLostError(KeyboardInterrupt):
    """Ray's head is gone. No Exception: Tune would ask Ray to clean up after one. Where Ray's C++
    passes it on it is any KeyboardInterrupt: `lost` knows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"Ray's head process ended ({self.reason})"


class _Head:
    """What this process knows of the head it is connected to; there is one at most."""

    def __init__(self) -> None:
        self.guard: Guard | None = None
        self.processes: list[subprocess.Popen[Any]] = []
        self.lost: HeadLostError | None = None
        self.over = threading.Event()
        self.thread: threading.Thread | None = None
        self.conclude: Callable[[], int] | None = None


_head = _Head()


@contextmanager
def own_sessions() -> Iterator[None]:
    """What Ray starts within is ours to end, and hears no signal that was meant for us."""
    from unittest import mock  # which takes longer than a short command

    from ray._private import services

    guard = _head.guard = Guard()
    _head.processes = []

    class Apart(services.ConsolePopen):
        def __init__(self, *args: Any, **options: Any) -> None:
            options["preexec_fn"] = partial(_prepare, options.get("preexec_fn"))
            super().__init__(*args, **options, start_new_session=True)
            guard.watch(self.pid)
            _head.processes.append(self)

        def terminate(self) -> None:
            self.kill()  # by then Ray has been left, and what they started is the guard's

    with mock.patch.object(services, "ConsolePopen", Apart):
        yield


def _prepare(first: Callable[[], None] | None) -> None:
    """In a child. systemd and SLURM send to every process there is: what is blocked is for us."""
    if first is not None:
        first()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def started() -> str | None:
    """Why the head we started is gone; None while it is there."""
    for process in list(_head.processes):
        command = process.args if isinstance(process.args, list) else [process.args]
        name = os.path.basename(str(command[0]))
        if name in NEEDED and process.poll() is not None:
            return f"{name}: {_how(process.returncode)}"
    return None


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def joined() -> Look:
    """Why the head of the cluster we joined is gone, or this node's part of it. Ray itself gives up
    after a minute without its head, which may come back before."""
    import ray
    from ray._private.worker import _global_node

    head = _address(ray.get_runtime_context().gcs_address)
    node = _global_node and (_global_node.node_ip_address, _global_node.node_manager_port)
    return _reaching(head, node or None, 0.75 * float(os.environ.get(RECONNECTING) or 60))


def _reaching(head: tuple[str, int], node: tuple[str, int] | None, patience: float) -> Look:
    refused = {"head": 0, "raylet": 0}
    since = time.monotonic()

    def look() -> str | None:
        nonlocal since
        refused["head"] = 0 if _listens(head) else refused["head"] + 1
        if not refused["head"]:
            since = time.monotonic()
        elif refused["head"] >= REFUSALS and time.monotonic() - since > patience:
            return f"nothing listens at {head[0]}:{head[1]}"
        refused["raylet"] = 0 if not node or _listens(node) else refused["raylet"] + 1
        return "this node's raylet is gone" if refused["raylet"] >= REFUSALS else None

    return look


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _listens(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, CONNECT_SECONDS):
            return True
    except OSError:
        return False


def watch(look: Look, seconds: float = LOOK_SECONDS) -> None:
    """Look now and then, in a thread, until `unwatch`."""
    _keep_from_mourning()
    _head.lost, _head.over = None, threading.Event()
    _head.thread = threading.Thread(
        target=_watch, args=(look, seconds, _head.over), name="head", daemon=True
    )
    _head.thread.start()


def _keep_from_mourning() -> None:
    """Of a raylet that died Ray shows the last lines of its log, before we can say what it means:
    twenty lines about timers."""
    from ray._private import worker

    show = worker.print_to_stdstream
    if getattr(show, "kept", False):
        return

    def without_raylets(data: dict[str, Any], *args: Any, **options: Any) -> None:
        if not any("Raylet is terminated" in str(line) for line in data.get("lines", ())):
            show(data, *args, **options)

    without_raylets.kept = True  # type: ignore[attr-defined]
    worker.print_to_stdstream = without_raylets


def _watch(look: Look, seconds: float, over: threading.Event) -> None:
    while not over.wait(seconds):
        reason = look()
        if reason is None:
            continue
        if over.wait(SIGNAL_SECONDS):
            return
        error = _note(reason)
        if break_off(error) and not over.wait(HEARING_SECONDS):
            _leave_stuck(error)
        return


def _note(reason: str) -> HeadLostError:
    _head.lost = _head.lost or HeadLostError(reason)
    return _head.lost


def check() -> None:
    """Raises where the head we started is gone: what then happens to trials is no fault of
    theirs."""
    reason = started()
    if reason is not None:
        raise _note(reason)


def unwatch() -> None:
    """We leave Ray, or have heard that it is gone."""
    _head.over.set()
    if _head.thread is not None:
        _head.thread.join(2 * CONNECT_SECONDS)
        _head.thread = None
    reason = started()
    if reason is not None:
        _note(reason)


def lost() -> HeadLostError | None:
    """What ended the connection this process had last, if it was not us."""
    return _head.lost


def end() -> None:
    """Kill what is left of the processes we started."""
    guard, _head.guard = _head.guard, None
    if guard is not None:
        guard.end()
    _head.processes = []


@contextmanager
def concluding(conclude: Callable[[], int]) -> Iterator[None]:
    """What to do, in a thread, when the head is lost while the main thread waits for Ray and hears
    nothing; returns the exit code."""
    _head.conclude = conclude
    try:
        yield
    finally:
        _head.conclude = None


def exit_code() -> int:
    return INTERRUPTED if asked_to_end() else LOST


def _leave_stuck(error: HeadLostError) -> None:
    code = exit_code()
    try:
        end()
        if _head.conclude is not None:
            code = _head.conclude()
        elif code == LOST:
            print(f"error: {error}", file=sys.stderr)
    finally:
        _exit(code)


def leave_without_ray(code: int) -> None:
    """When the process ends Ray would try to reach its head once more: end before that."""
    atexit.register(_exit, code)


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
