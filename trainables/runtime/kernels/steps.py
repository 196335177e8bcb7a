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
    """six vectors of `outputs.finish_together`; 0: the program is another one"""
    PROGRAM = 28
    """operations (code, a, b)"""
    OPERATIONS = 29
    CONSTANTS = 30
    """vectors of the operations"""


FIELDS = len(Field)
UNITS, SHARE = int(Field.UNITS), int(Field.SHARE)


class Head(IntEnum):
    """The numbers of a job."""

    COUNT = 0
    """of steps"""
    STEPS = 1
    """address of their rows"""
    COUNTERS = 2
    """address of two counters per step, a cache line each; 0: one thread runs the job"""
    YIELD = 3
    """address of the C function that lets another thread run; 0: there is none"""


COUNT, STEPS, COUNTERS, YIELD = (int(head) for head in Head)
HEADS = len(Head)
# Numbers per step, of which the first counts parts that are taken, that in the middle those done.
LINE = 16
# So often a thread looks whether the others are done before it lets others run.
PATIENCE = 2_000


@njit(nogil=True)
def job_at(address: int) -> Any:
    """The numbers of the job."""
    return carray(pointer(np.intp(address)), (HEADS,), np.int64)


@njit(nogil=True)
def step_at(job: Any, number: int) -> Any:
    """The numbers of a step."""
    return carray(pointer(np.intp(job[STEPS] + 8 * FIELDS * number)), (FIELDS,), np.int64)


@njit(nogil=True)
def taken(job: Any, number: int, step: Any, first: bool) -> tuple[int, int]:
    """The units of a step that this thread computes next; none are left where both are equal."""
    units, share = step[UNITS], step[SHARE]
    if job[COUNTERS] == 0:
        return 0, units if first else 0
    begin = share * counted(np.intp(job[COUNTERS] + 8 * LINE * number), 1)
    return min(begin, units), min(begin + share, units)


@njit(nogil=True)
def done(job: Any, number: int) -> None:
    """Count what `taken` gave as computed."""
    if job[COUNTERS] != 0:
        counted(np.intp(job[COUNTERS] + 8 * LINE * number + 4 * LINE), 1)


@njit(nogil=True)
def wait(job: Any, number: int, step: Any) -> None:
    """Return when all of a step is computed."""
    if job[COUNTERS] == 0:
        return
    parts = (step[UNITS] + step[SHARE] - 1) // step[SHARE]
    place = np.intp(job[COUNTERS] + 8 * LINE * number + 4 * LINE)
    looked = 0
    while seen(place) < parts:
        looked += 1
        if looked > PATIENCE and job[YIELD] != 0:
            called(np.intp(job[YIELD]))
