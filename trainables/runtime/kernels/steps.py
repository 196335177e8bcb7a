"""A step is a row of numbers that says what is computed: its kind, where its arrays are, their
sizes. Steps follow each other in a job, which one call runs from first to last; several threads may
run the same job and share every step between them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit
from numba.np.numpy_support import carray

from bitfront.trainables.runtime.kernels.instructions import called, counted, pointer, seen


class Kind(IntEnum):
    """What a step does."""

    PACK_WORDS = 0
    """signs of floats to bits of words (`popcount`)"""
    SUM_WORDS = 1
    """a layer on such bits"""
    PACK_FOURS = 2
    """signs of floats to numbers of four signs (`lookup`)"""
    SUM_FOURS = 3
    """a layer on such numbers"""
    FLOATS = 4
    """operations on floats (`outputs`)"""


class Field(IntEnum):
    """The numbers of a step. Those in capitals of one word are addresses of arrays."""

    KIND = 0
    UNITS = 1
    """into how many equal pieces the step can be cut"""
    SHARE = 2
    """how many of them a thread takes at once"""
    X = 3
    """float inputs (n, height, width, channels)"""
    SHIFT = 4
    """the places that become +1, per channel (`instructions.place_of`)"""
    PACKED = 5
    """their signs"""
    HEIGHT = 6
    WIDTH = 7
    IN_CHANNELS = 8
    GROUPS = 9
    IMAGE_BYTES = 10
    """from one image in PACKED to the next"""
    LINE_BYTES = 11
    BORDER_BYTES = 12
    """before the first sign in PACKED, which is behind the border of zeros"""
    GROUP_BYTES = 13
    PLACES = 14
    """pairs per pixel: where in PACKED it begins to read, and its row of BASES in bytes"""
    TAPS = 15
    """where a pixel reads from there, in the order of the weights"""
    STEPS = 16
    """how many taps"""
    WEIGHTS = 17
    BASES = 18
    """sums of a pixel if no sign differed"""
    BLOCKS = 19
    """of outputs, per group"""
    TILE = 20
    """pixels x 100 + vectors of outputs that are computed at once"""
    TABLE = 21
    LENGTH = 22
    """taps that follow each other in memory"""
    OUT = 23
    """float outputs (pixels, channels)"""
    PIXELS = 24
    CHANNELS = 25
    RESIDUAL = 26
    """what a shortcut brings, like OUT; 0: there is none"""
    TOGETHER = 27
    """six vectors with all operations at once (`outputs`); 0: the program is another one"""
    PROGRAM = 28
    """operations (code, a, b)"""
    OPERATIONS = 29
    CONSTANTS = 30
    """vectors of the operations"""
    ACROSS = 31
    """1: a unit is a tile of pixels with all of its outputs; 0: with one block of outputs"""


FIELDS = len(Field)
UNITS, SHARE = int(Field.UNITS), int(Field.SHARE)


class Head(IntEnum):
    """The numbers of a job."""

    COUNT = 0
    """of steps"""
    STEPS = 1
    """address of their rows"""
    COUNTERS = 2
    """address of counters, a cache line each: of threads that came, and per step of parts that are
    done, and of those taken of each thread's own; 0: one thread runs the job"""
    YIELD = 3
    """address of the C function that lets another thread run; 0: there is none"""
    THREADS = 4


COUNT, STEPS, COUNTERS, YIELD, THREADS = (int(head) for head in Head)
HEADS = len(Head)
# Numbers of a counter's line.
LINE = 16
# So often a thread looks whether the others are done before it lets others run.
PATIENCE = 100_000


@njit(nogil=True)
def job_at(address: int) -> Any:
    """The numbers of the job."""
    return carray(pointer(np.intp(address)), (HEADS,), np.int64)


@njit(nogil=True)
def step_at(job: Any, number: int) -> Any:
    """The numbers of a step."""
    return carray(pointer(np.intp(job[STEPS] + 8 * FIELDS * number)), (FIELDS,), np.int64)


@njit(nogil=True)
def _counter(job: Any, number: int, thread: int) -> Any:
    """Where the counter is of parts that are done (thread -1), or taken of a thread's own."""
    lines = 1 + number * (1 + job[THREADS]) + 1 + thread
    return np.intp(job[COUNTERS] + 8 * LINE * lines)


@njit(nogil=True)
def arrived(job: Any) -> int:
    """The number of the thread that calls, in the order in which they come."""
    return 0 if job[COUNTERS] == 0 else counted(np.intp(job[COUNTERS]), 1)


@njit(nogil=True)
def taken(job: Any, number: int, step: Any, who: int, first: bool) -> tuple[int, int]:
    """The units of a step that this thread computes next; none are left where both are equal. Every
    thread begins with parts of its own, the same share of all steps, whose data it has in its
    cache; then it takes those of others."""
    units, share, threads = step[UNITS], step[SHARE], job[THREADS]
    if job[COUNTERS] == 0:
        return 0, units if first else 0
    parts = (units + share - 1) // share
    for turn in range(threads):
        owner = (who + turn) % threads
        begin, end = parts * owner // threads, parts * (owner + 1) // threads
        place = _counter(job, number, owner)
        if begin + seen(place) < end:
            part = begin + counted(place, 1)
            if part < end:
                return part * share, min(part * share + share, units)
    return 0, 0


@njit(nogil=True)
def done(job: Any, number: int) -> None:
    """Count what `taken` gave as computed."""
    if job[COUNTERS] != 0:
        counted(_counter(job, number, -1), 1)


@njit(nogil=True)
def wait(job: Any, number: int, step: Any) -> None:
    """Return when all of a step is computed."""
    if job[COUNTERS] == 0:
        return
    parts = (step[UNITS] + step[SHARE] - 1) // step[SHARE]
    place = _counter(job, number, -1)
    looked = 0
    while seen(place) < parts:
        looked += 1
        if looked > PATIENCE and job[YIELD] != 0:
            called(np.intp(job[YIELD]))
