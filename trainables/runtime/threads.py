"""Jobs on several threads. They are those of torch, which wait for work anyway: threads of our own
would have to share the cores with them. Those of Numba abort the process where two jobs run at once
(numba#8563). Where torch has others than OpenMP's, Python's are used."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch


def threads() -> int:
    """How many threads a job may use: as many as torch does."""
    return torch.get_num_threads()


# The process that has threads of OpenMP: one that is forked of it would wait for them for ever.
_FIRST_PROCESS = os.getpid()


@cache
def _openmp() -> Any:
    """The function with which torch starts a parallel region, of the OpenMP that it uses itself;
    None where there is none."""
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        try:
            start = ctypes.CDLL(str(folder / name)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        start.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        start.restype = None
        return start
    return None


@cache
def yields() -> int:
    """The address of the C function that lets another thread run; 0 where there is none."""
    try:
        function = ctypes.CDLL(None).sched_yield
    except (OSError, AttributeError, TypeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 1) - 1))


def run(job: Any) -> None:
    """Run a job (`jobs.Job`) to its end."""
    made = job.function
    if job.threads == 1:
        made.ctypes(job.place)
        return
    job.counters[:] = 0
    start = _openmp()
    if start is not None and os.getpid() == _FIRST_PROCESS:
        start(made.address, job.place, job.threads, 0)
    else:
        _run_on_pythons(made.ctypes, job)


def _run_on_pythons(call: Any, job: Any) -> None:
    """The same on threads of Python. One that wakes up late finds less to do, or nothing."""
    pool = _pool(os.getpid())
    others = [pool.submit(call, job.place) for _ in range(job.threads - 1)]
    call(job.place)
    for other in others:
        if not other.cancel():
            other.result()


@contextmanager
def using(number: int) -> Iterator[None]:
    """Inside, layers of torch and of kernels use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
