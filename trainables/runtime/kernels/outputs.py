"""What happens to the sums of a tile before they are stored: a short program over floats, one
operation after another. Every operation rounds as torch does where a layer of its own computes it,
so that fused and separate layers give the same bits."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from bitfront.trainables.runtime.kernels.instructions import (
    fused,
    loaded,
    number,
    pointer,
    stored,
    vector,
)
from bitfront.trainables.runtime.kernels.steps import Field


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
X, OUT, PIXELS, CHANNELS = (int(f) for f in (Field.X, Field.OUT, Field.PIXELS, Field.CHANNELS))
BROUGHT, TOGETHER = int(Field.RESIDUAL), int(Field.TOGETHER)
PROGRAM, OPERATIONS = int(Field.PROGRAM), int(Field.OPERATIONS)
CONSTANTS = int(Field.CONSTANTS)


def _finisher(lanes: int, pixels: int) -> Any:
    floats = vector(ir.FloatType(), lanes)

    @intrinsic
    def finish(
        _typing: Any,
        sums: Any,
        apart: Any,
        constants: Any,
        between: Any,
        residual: Any,
        out: Any,
        shortcut: Any,
    ) -> Any:
        """out = min(max(fma(z m + c, a, b) + residual, low), high) for the floats z at `sums`, of
        which pixels are `apart` bytes apart. `constants`: where m is; c, a, b, low and high follow,
        `between` bytes apart, and so do the pixels of `out` and `residual`, which is read if the
        tuple `shortcut` has two entries."""
        signature = types.void(*(types.intp,) * 6, shortcut)
        added = len(shortcut) == 2

        def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            sums_, apart_, constants_, between_, residual_, out_, _ = args

            def at(place: Any, step: Any, count: int) -> Any:
                return builder.add(place, builder.mul(step, number(count)))

            m, c, a, b, low, high = (
                loaded(builder, at(constants_, between_, n), floats) for n in range(6)
            )
            fma = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(floats, [floats] * 3), f"llvm.fma.v{lanes}f32"
            )
            for p in range(pixels):
                z = loaded(builder, at(sums_, apart_, p), floats)
                y = builder.call(fma, [builder.fadd(builder.fmul(z, m), c), a, b])
                if added:
                    y = builder.fadd(y, loaded(builder, at(residual_, between_, p), floats))
                y = builder.select(builder.fcmp_ordered("<", y, low), low, y)
                y = builder.select(builder.fcmp_ordered(">", y, high), high, y)
                stored(builder, y, at(out_, between_, p))
            return context.get_dummy_value()

        return signature, generate

    return finish


_finish_16_4, _finish_8 = _finisher(16, 4), _finisher(8, 1)


@njit(nogil=True)
def _together(
    step: Any, y: int, apart: int, begun: int, pixels: int, first: int, used: int
) -> None:
    """Store outputs to which all operations of `_finisher` apply; `y`: the address of floats, so
    many bytes apart from pixel to pixel."""
    between, brings = 4 * step[CHANNELS], step[BROUGHT] != 0
    place = begun * between + 4 * first
    constants, out = np.intp(step[TOGETHER] + 4 * first), np.intp(step[OUT] + place)
    brought = np.intp(step[BROUGHT] + place)
    whole = used // 16 * 16 if pixels == 4 else 0
    for o in range(0, whole, 16):
        at = np.intp(4 * o)
        ends = (constants + at, between, brought + at, out + at)
        if brings:
            _finish_16_4(y + at, apart, *ends, (0, 0))
        else:
            _finish_16_4(y + at, apart, *ends, (0,))
    for p in range(pixels):
        for o in range(whole, used, 8):
            at = np.intp(4 * o)
            here = np.intp(p * between) + at
            ends = (constants + at, between, brought + here, out + here)
            if brings:
                _finish_8(y + p * apart + at, apart, *ends, (0, 0))
            else:
                _finish_8(y + p * apart + at, apart, *ends, (0,))


@njit(nogil=True)
def _operate(row: Any, code: int, a: Any, b: Any, brought: Any) -> None:
    """One operation on the outputs of a pixel."""
    if code == MULTIPLY:
        for o in range(len(row)):
            row[o] = row[o] * a[o]
    elif code == ADD:
        for o in range(len(row)):
            row[o] = row[o] + a[o]
    elif code == SUBTRACT:
        for o in range(len(row)):
            row[o] = row[o] - a[o]
    elif code == LINEAR:
        for o in range(len(row)):
            row[o] = fused(row[o], a[o], b[o])
    elif code == RESIDUAL:
        for o in range(len(row)):
            row[o] = row[o] + brought[o]
    elif code == AT_LEAST:
        for o in range(len(row)):
            row[o] = a[o] if row[o] < a[o] else row[o]
    elif code == AT_MOST:
        for o in range(len(row)):
            row[o] = a[o] if row[o] > a[o] else row[o]
    elif code == PRELU:
        for o in range(len(row)):
            row[o] = row[o] if row[o] > 0 else row[o] * a[o]


@njit(nogil=True)
def _floats(address: int, count: int) -> Any:
    return carray(pointer(np.intp(address)), (count,), np.float32)


@njit(nogil=True)
def finish(step: Any, y: int, apart: int, begun: int, pixels: int, first: int, used: int) -> None:
    """Apply the program of a step to the sums of a tile, and store them: `pixels` of them from
    `begun` on, `used` channels from `first` on. `y`: the address of the sums, floats, `apart` bytes
    from one pixel to the next; they are overwritten."""
    if step[TOGETHER] != 0 and used % 8 == 0:
        _together(step, np.intp(y), np.intp(apart), begun, pixels, first, used)
        return
    channels = step[CHANNELS]
    program = carray(pointer(np.intp(step[PROGRAM])), (step[OPERATIONS], 3), np.int64)
    for p in range(pixels):
        row = _floats(y + p * apart, used)
        place = 4 * ((begun + p) * channels + first)
        brought = _floats(step[BROUGHT] + place if step[BROUGHT] != 0 else y, used)
        for operation in range(len(program)):
            a = _floats(step[CONSTANTS] + 4 * (program[operation, 1] * channels + first), used)
            b = _floats(step[CONSTANTS] + 4 * (program[operation, 2] * channels + first), used)
            _operate(row, program[operation, 0], a, b, brought)
        out = _floats(step[OUT] + place, used)
        for o in range(used):
            out[o] = row[o]


@njit(nogil=True)
def operate(step: Any, begin: int, end: int) -> None:
    """The program of a step on pixels `begin` to `end` of its float inputs."""
    channels = step[CHANNELS]
    scratch = np.empty(channels, np.float32)
    together = step[TOGETHER] != 0 and channels % 8 == 0
    pixel = begin
    while pixel < end:
        place = np.intp(step[X] + 4 * pixel * channels)
        if together:
            count = 4 if end - pixel >= 4 else 1
            _together(step, place, np.intp(4 * channels), pixel, count, 0, channels)
        else:
            count = 1
            x = _floats(place, channels)
            for o in range(channels):
                scratch[o] = x[o]
            finish(step, scratch.ctypes.data, 0, pixel, 1, 0, channels)
        pixel += count
