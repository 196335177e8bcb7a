"""What this machine offers to kernels."""

from __future__ import annotations

import platform
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Raised whenever a change of a kernel changes its speed: tables of latencies name it.
KERNELS = 1


def has_kernels() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


@cache
def has_lookup() -> bool:
    """Whether the CPU has the byte shuffle of the look-up kernel."""
    from llvmlite import binding

    return platform.machine() == "x86_64" and bool(binding.get_host_cpu_features().get("avx2"))


@cache
def cpu_name() -> str:
    """The model of the CPU, as the system calls it, and what LLVM calls its kind where Numba is
    installed."""
    names = [platform.processor() or platform.machine()]
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line.partition(":") for line in info.read_text().splitlines())
        names = [value.strip() for key, _, value in lines if key.strip() == "model name"] or names
    if not has_kernels():
        return names[0]
    from llvmlite import binding

    return f"{names[0]} ({binding.get_host_cpu_name()})"
