"""A limit on what a process prints into its log, so that one that never stops fills no disk. Ray
keeps the logs of workers as long as the cluster lives, and lets them grow."""

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
    """From here on the files behind this process's output begin anew whenever they are larger than
    that; of what was printed, the end is kept. For workers, whose log is nobody else's file."""
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
    """Now, whoever ends next: what the last half second printed would stay."""
    if _limit is not None:
        shorten(STREAMS, _limit)


def shorten(streams: Sequence[int], megabytes: float) -> None:
    """Empty the files behind `streams` that are larger. They are open for appending: whoever else
    writes to them, a child process too, goes on at their new end."""
    for stream in streams:
        status = os.fstat(stream)
        if stat.S_ISREG(status.st_mode) and status.st_size > megabytes * 1e6:
            gone = f"{status.st_size / 1e6:,.0f} MB that were printed before are gone"
            with contextlib.suppress(OSError):  # the disk is full: nobody can print then
                os.ftruncate(stream, 0)
                os.write(stream, f"[bitfront] {gone} (resources.log_mb: {megabytes:g})\n".encode())
