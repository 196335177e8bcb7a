"""A limit on the host memory of this process, so that a leak fails this trial alone."""

from __future__ import annotations

import resource
from pathlib import Path

STATUS = Path("/proc/self/status")


def limit_memory(gigabytes: float | None) -> None:
    """Limit the memory that this process may allocate to `gigabytes` more than it has now; None: no
    limit but the hard limit of the process. A larger allocation raises MemoryError. Only on Linux;
    elsewhere nothing is limited."""
    if not STATUS.exists():
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard if gigabytes is None else _data_bytes() + int(gigabytes * 1e9)
    if hard != resource.RLIM_INFINITY:  # a limit that the user has set and nobody may raise
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Bytes of private writable memory, which is what RLIMIT_DATA limits."""
    line = next(row for row in STATUS.read_text().splitlines() if row.startswith("VmData:"))
    return int(line.split()[1]) * 1024
