"""A limit on the size of a process's log, so that a process that prints without end does not fill
the disk. Ray keeps the logs of workers for the lifetime of the cluster, without a limit."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Sequence

STREAMS = (1, 2)
LOG_MB = 100.0
LOOK_SECONDS = 0.5

_limit: float | None = None
_watch: threading.Thread | None = None


def limit_log(megabytes: float | None) -> None:
    """Limit the size of the files that this process's output is written to; None: no limit. A file
    that exceeds it is emptied, and later output is appended to it. For workers, each of which has a
    log file of its own."""
    global _limit, _watch
    _limit = megabytes
    if _watch is None and megabytes is not None:
        _watch = threading.Thread(target=_look, name="bitfront-log", daemon=True)
        _watch.start()


def _look() -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        shorten_log()


def shorten_log() -> None:
    """Apply the limit now. Otherwise a process that ends within the next half second would leave a
    large log."""
    if _limit is not None:
        shorten(STREAMS, _limit)


def shorten(streams: Sequence[int], megabytes: float) -> None:
    """Empty those files of `streams` (file descriptors) that are larger than `megabytes`. They are
    open for appending, so that other writers, such as child processes, continue at the new end."""
    for stream in streams:
        status = os.fstat(stream)
        if stat.S_ISREG(status.st_mode) and status.st_size > megabytes * 1e6:
            gone = f"{status.st_size / 1e6:,.0f} MB that were printed before are gone"
            with contextlib.suppress(OSError):  # the disk is full
                os.ftruncate(stream, 0)
                os.write(stream, f"[bitfront] {gone} (resources.log_mb: {megabytes:g})\n".encode())
