"""A limit on the host memory of this process, so that one that leaks fails alone."""

from __future__ import annotations

import resource
from pathlib import Path

STATUS = Path("/proc/self/status")


def limit_memory(gigabytes: float | None) -> None:
    """From here on the process may take so much more than it has now, or as much as there is.
    What asks for more gets an error it can be told by. Linux only; elsewhere nothing is limited."""
    if not STATUS.exists():
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard if gigabytes is None else _data_bytes() + int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Private memory that can be written to, which is what the system limits."""
    line = next(row for row in STATUS.read_text().splitlines() if row.startswith("VmData:"))
    return int(line.split()[1]) * 1024
