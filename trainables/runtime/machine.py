"""What this machine offers to kernels."""

from __future__ import annotations

import os
import platform
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Raised whenever a change of a kernel changes its speed: tables of latencies name it.
KERNELS = 2


def has_kernels() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


class Kernel(StrEnum):
    """How sums of signs are computed."""

    POPCOUNT = "popcount"
    """bits of vectors are counted"""
    LOOKUP = "lookup"
    """byte shuffles look sums of four signs up"""


@cache
def _features() -> frozenset[str]:
    """What the CPU can do that Numba compiles for, in LLVM's words."""
    from llvmlite import binding

    if {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"} & set(os.environ):  # for another CPU than this
        named = os.environ.get("NUMBA_CPU_FEATURES", "").split(",")
        return frozenset(name[1:] for name in named if name.startswith("+"))
    return frozenset(name for name, has in binding.get_host_cpu_features().items() if has)


def has_lookup() -> bool:
    """Whether the CPU has the byte shuffle of the look-up kernel."""
    return platform.machine() in ("x86_64", "AMD64") and "avx2" in _features()


def counts_vectors() -> bool:
    """Whether the CPU counts the bits of a vector of 512 bits in one instruction."""
    return "avx512vpopcntdq" in _features()


def best_kernel() -> Kernel:
    """The fastest one on this CPU."""
    return Kernel.LOOKUP if has_lookup() and not counts_vectors() else Kernel.POPCOUNT


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
