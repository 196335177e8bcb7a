"""Jobs as C functions, which need no Python while they run: of steps that run everywhere, and of
those and the look-up kernel's. Each is compiled once per machine and version of these files, and
kept on disk."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import cfunc, njit, types

from bitfront.trainables.runtime.kernels import lookup, popcount
from bitfront.trainables.runtime.kernels.outputs import operate
from bitfront.trainables.runtime.kernels.steps import (
    COUNT,
    Field,
    Kind,
    arrived,
    done,
    job_at,
    step_at,
    taken,
    wait,
)

KIND = int(Field.KIND)
PACK_WORDS, SUM_WORDS, FLOATS = int(Kind.PACK_WORDS), int(Kind.SUM_WORDS), int(Kind.FLOATS)
PACK_FOURS, SUM_FOURS = int(Kind.PACK_FOURS), int(Kind.SUM_FOURS)


@njit(nogil=True)
def _everywhere(step: Any, begin: int, end: int) -> None:
    kind = step[KIND]
    if kind == SUM_WORDS:
        popcount.convolve(step, begin, end)
    elif kind == PACK_WORDS:
        popcount.pack(step, begin, end)
    elif kind == FLOATS:
        operate(step, begin, end)


@njit(nogil=True)
def _with_lookup(step: Any, begin: int, end: int) -> None:
    kind = step[KIND]
    if kind == SUM_FOURS:
        lookup.convolve(step, begin, end)
    elif kind == PACK_FOURS:
        lookup.pack(step, begin, end)
    else:
        _everywhere(step, begin, end)


@cache
def _sources() -> str:
    """A digest of the files of kernels. Numba compiles again when the file of a function changes,
    not those of the functions it calls; but also when a variable around it does."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@cache
def runner(looked_up: bool) -> Any:
    """The C function that runs the job at an address, as Numba offers it (`address`, `ctypes`)."""
    sources = _sources()

    def run_everywhere(address: Any) -> Any:
        len(sources)
        job = job_at(address)
        who = arrived(job)
        for number in range(job[COUNT]):
            step = step_at(job, number)
            begin, end = taken(job, number, step, who, True)
            while begin < end:
                _everywhere(step, begin, end)
                done(job, number)
                begin, end = taken(job, number, step, who, False)
            wait(job, number, step)

    def run_with_lookup(address: Any) -> Any:
        len(sources)
        job = job_at(address)
        who = arrived(job)
        for number in range(job[COUNT]):
            step = step_at(job, number)
            begin, end = taken(job, number, step, who, True)
            while begin < end:
                _with_lookup(step, begin, end)
                done(job, number)
                begin, end = taken(job, number, step, who, False)
            wait(job, number, step)

    chosen = run_with_lookup if looked_up else run_everywhere
    return cfunc(types.void(types.intp), nopython=True, cache=True)(chosen)
