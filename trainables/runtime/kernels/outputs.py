"""What happens to the sums of a tile before they are stored: a short program over floats, one
operation after another. Every operation rounds as torch does where a layer of its own computes it,
so that fused and separate layers give the same bits."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from numba import njit

from bitfront.trainables.runtime.kernels.instructions import fused


class Operation(IntEnum):
    """y is the output of a tile, a and b are vectors with an entry per channel."""

    MULTIPLY = 1
    """y a"""
    ADD = 2
    """y + a"""
    SUBTRACT = 3
    """y - a"""
    LINEAR = 4
    """y a + b, rounded once: a batch norm"""
    RESIDUAL = 5
    """y + the tensor that a shortcut brings"""
    AT_LEAST = 6
    """max(y, a)"""
    AT_MOST = 7
    """min(y, a)"""
    PRELU = 8
    """y where y > 0, else a y"""


MULTIPLY, ADD, SUBTRACT, LINEAR = (int(Operation(code)) for code in range(1, 5))
RESIDUAL, AT_LEAST, AT_MOST, PRELU = (int(Operation(code)) for code in range(5, 9))


@njit(nogil=True, cache=True)
def finish(
    y: Any, program: Any, vectors: Any, first: int, used: int, residual: Any, pixel: int
) -> None:
    """Apply the operations of `program`, rows (code, a, b) with the numbers of rows of `vectors`,
    to `used` channels of every pixel in y, whose channels begin at `first`. `residual`: the
    shortcut, (pixels, channels), of which the pixels of y begin at `pixel`; empty where the program
    reads none."""
    for step in range(len(program)):
        code = program[step, 0]
        a, b = vectors[program[step, 1]][first:], vectors[program[step, 2]][first:]
        for p in range(len(y)):
            row = y[p]
            if code == MULTIPLY:
                for o in range(used):
                    row[o] = row[o] * a[o]
            elif code == ADD:
                for o in range(used):
                    row[o] = row[o] + a[o]
            elif code == SUBTRACT:
                for o in range(used):
                    row[o] = row[o] - a[o]
            elif code == LINEAR:
                for o in range(used):
                    row[o] = fused(row[o], a[o], b[o])
            elif code == RESIDUAL:
                brought = residual[pixel + p][first:]
                for o in range(used):
                    row[o] = row[o] + brought[o]
            elif code == AT_LEAST:
                for o in range(used):
                    row[o] = a[o] if row[o] < a[o] else row[o]
            elif code == AT_MOST:
                for o in range(used):
                    row[o] = a[o] if row[o] > a[o] else row[o]
            elif code == PRELU:
                for o in range(used):
                    row[o] = row[o] if row[o] > 0 else row[o] * a[o]
