"""The Ray processes a driver depends on. Those it starts run in sessions of their own, so that
signals for the driver do not reach them, and end with it. When Ray's head dies, the driver notices
and says so; Ray would wait for a minute and then end the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.search.cluster.guard import Guard
from bitfront.search.session.interrupts import SIGNALS, asked_to_end, break_off, held_back
from bitfront.trainables.files import discard

if TYPE_CHECKING:
    import subprocess

# Ray cannot go on without these; it can without its monitors.
NEEDED = ("gcs_server", "raylet")
LOOK_SECONDS = 0.2
JOINED_LOOK_SECONDS = 2.0
CONNECT_SECONDS = 5.0
# After so many refused connections in a row a process counts as gone.
REFUSALS = 3
# Whatever killed the head of a cluster may send us a signal too. It is waited for, since ending on
# request takes precedence over a lost head.
SIGNAL_SECONDS = 0.5
# How long the main thread may take to react: it cannot while it waits in Ray's C++.
REACTION_SECONDS = 5.0
# Ray's own variable: how many seconds it waits for its head.
RECONNECTING = "RAY_gcs_rpc_server_reconnect_timeout_s"
INTERRUPTED = 130
LOST = 1

# The folder in which Ray unpacks the files of jobs.
RUNTIME_FILES = "runtime_resources"
# Parts of what Ray prints about a raylet or node that is gone.
OF_DEAD_NODES = ("Raylet is terminated", "has been marked dead")

Look = Callable[[], "str | None"]


class HeadLostError(KeyboardInterrupt):
    """Ray's head is gone. A KeyboardInterrupt and no Exception: after an Exception Tune would ask
    Ray to clean up. Where Ray's C++ turns it into a plain KeyboardInterrupt, `lost` still returns
    it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"Ray's head process ended ({self.reason})"


class _Head:
    """The state of this process's connection to a head; there is one at most."""

    def __init__(self) -> None:
        self.guard: Guard | None = None
        self.processes: list[subprocess.Popen[Any]] = []
        self.session: Path | None = None
        self.lost: HeadLostError | None = None
        self.over = threading.Event()
        self.thread: threading.Thread | None = None
        self.conclude: Callable[[], int] | None = None


_head = _Head()


@contextmanager
def own_sessions() -> Iterator[None]:
    """Processes that Ray starts within this context get sessions of their own: signals for this
    process do not reach them, and `end` kills them."""
    from unittest import mock  # slow to import, compared with a short command

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
            self.kill()  # this process has left Ray by then; the guard kills what they started

    with mock.patch.object(services, "ConsolePopen", Apart):
        yield


def _prepare(first: Callable[[], None] | None) -> None:
    """Block our signals in a child: systemd and SLURM send them to every process there is."""
    if first is not None:
        first()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def started() -> str | None:
    """Why the head we started is gone; None while it runs."""
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
    """A function that returns why the head of the cluster we joined or this node's raylet is gone.
    Ray itself gives up after a minute without its head, which may come back before."""
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
    """Call `look` every few seconds, in a thread, until `unwatch`."""
    _hide_raylet_logs()
    _head.lost, _head.over = None, threading.Event()
    with held_back():  # a thread whose start is interrupted cannot be joined
        _head.thread = threading.Thread(
            target=_watch, args=(look, seconds, _head.over), name="head", daemon=True
        )
        _head.thread.start()


def _hide_raylet_logs() -> None:
    """Keep Ray from printing the end of a dead raylet's log, twenty lines about timers, before we
    can say what happened, and its paragraph about a dead node, of which the watcher says more."""
    from ray._private import worker

    show = worker.print_to_stdstream
    if getattr(show, "kept", False):
        return

    def without_raylets(data: dict[str, Any], *args: Any, **options: Any) -> None:
        said = " ".join(str(line) for line in data.get("lines", ()))
        if not any(words in said for words in OF_DEAD_NODES):
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
        if break_off(error) and not over.wait(REACTION_SECONDS):
            _leave_stuck(error)
        return


def _note(reason: str) -> HeadLostError:
    _head.lost = _head.lost or HeadLostError(reason)
    return _head.lost


def check() -> None:
    """Raise where the head we started is gone: trials that fail then are not at fault."""
    reason = started()
    if reason is not None:
        raise _note(reason)


def unwatch() -> None:
    """Stop watching: we leave Ray, or know that it is gone."""
    _head.over.set()
    if _head.thread is not None:
        _head.thread.join(2 * CONNECT_SECONDS)
        _head.thread = None
    reason = started()
    if reason is not None:
        _note(reason)


def lost() -> HeadLostError | None:
    """Why Ray's head was lost during the last connection, if it was."""
    return _head.lost


def leave_job_folder(folder: Path) -> None:
    """Go to `folder` from the folder of a Ray job. Where nodes share a disk, one that joins unpacks
    that folder anew: ours would be a deleted one, in which Tune cannot name a path."""
    if RUNTIME_FILES in Path.cwd().parts:
        os.chdir(folder)


def remember_session(folder: Path) -> None:
    """Note the session folder of the Ray we started, for `end` to delete."""
    _head.session = folder


def end() -> None:
    """Kill what is left of the processes we started and delete their session folder. Where Ray was
    lost the folder stays: its logs may say why."""
    guard, _head.guard = _head.guard, None
    if guard is not None:
        guard.end()
    _head.processes = []
    session, _head.session = _head.session, None
    if session is not None and _head.lost is None:
        _delete_session(session)


def _delete_session(folder: Path) -> None:
    """Delete a session folder and Ray's links to it, `session_latest` among them: Ray does not
    replace a link that leads nowhere. Ray ends a session's name with the process id of its driver:
    a folder with another one is not ours and stays."""
    if folder.is_symlink() or not re.fullmatch(rf"session_.*_{os.getpid()}", folder.name):
        return
    for path in folder.parent.iterdir():
        with contextlib.suppress(OSError):  # not a link, or replaced meanwhile
            if Path(os.readlink(path)).is_relative_to(folder):
                path.unlink()
    discard(folder)


@contextmanager
def concluding(conclude: Callable[[], int]) -> Iterator[None]:
    """Have `conclude` called in a thread, and its exit code used, when the head is lost while the
    main thread is stuck in Ray."""
    _head.conclude = conclude
    try:
        yield
    finally:
        _head.conclude = None


def exit_code() -> int:
    """The code a driver ends with that has lost its head."""
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
    """End the process before Ray's own exit handler, which would try to reach its head again."""
    atexit.register(_exit, code)


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
