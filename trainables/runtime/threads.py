"""Parts of one layer on several threads. Kernels release Python's lock; the threads are Python's,
since those of Numba abort the process where two layers run at once (numba#8563)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import torch

# So many parts at least for each thread that takes part.
FEWEST_PARTS = 8


def threads() -> int:
    """How many threads a layer may use: as many as torch does."""
    return torch.get_num_threads()


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 1) - 1))


def in_parts(count: int, work: Callable[[int, int], object]) -> None:
    """Call work(begin, end) for parts of range(count), one of them in this thread."""
    shares = max(1, min(threads(), count // FEWEST_PARTS))
    if shares == 1:
        work(0, count)
        return
    bounds = [count * share // shares for share in range(shares + 1)]
    # A forked process has none of the threads.
    pool = _pool(os.getpid())
    others = [pool.submit(work, a, b) for a, b in pairwise(bounds[1:])]
    work(0, bounds[1])
    for other in others:
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
