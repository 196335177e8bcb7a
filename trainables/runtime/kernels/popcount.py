"""The portable kernel: signs are bits of words, and the ones of an exclusive or are the signs that
differ. LLVM makes vector instructions of the loop over outputs where the CPU has them. Fits every
number of channels; taps outside of the image are left out, so that zero padding adds nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitfront.trainables.runtime.kernels.instructions import count_ones
from bitfront.trainables.runtime.kernels.outputs import finish

WORDS = (np.uint16, np.uint32, np.uint64)


def word_for(inputs: int) -> type[np.unsignedinteger[Any]]:
    """The shortest word that holds so many signs; the longest where none does."""
    return next((word for word in WORDS if inputs <= 8 * np.dtype(word).itemsize), WORDS[-1])


def packed_weights(signs: NDArray[np.float32], groups: int) -> NDArray[np.unsignedinteger[Any]]:
    """The signs (outputs, inputs, rows, columns) as (groups, taps, words, outputs of a group)."""
    outputs, inputs, rows, columns = signs.shape
    word = word_for(inputs)
    size = 8 * np.dtype(word).itemsize
    count = -(-inputs // size)
    bits = np.zeros((rows * columns, count * size, outputs), bool)
    bits[:, :inputs] = (signs > 0).transpose(2, 3, 1, 0).reshape(-1, inputs, outputs)
    powers = word(1) << np.arange(size).astype(word)
    values = (bits.reshape(-1, count, size, outputs) * powers[:, None]).sum(2, dtype=word)
    values = values.reshape(rows * columns, count, groups, outputs // groups)
    return np.ascontiguousarray(values.transpose(2, 0, 1, 3))


@njit(nogil=True, cache=True)
def pack_inputs(x: Any, shift: Any, packed: Any, size: int) -> None:
    """Write sign(x - shift) of images (n, height, width, channels) into `packed` (n, height, width,
    groups, words) of words of `size` bits."""
    channels = x.shape[3]
    groups, words = packed.shape[3:]
    inputs = channels // groups
    pixels = x.reshape(-1, channels)
    places = packed.reshape(-1, groups, words)
    for pixel in range(len(pixels)):
        for group in range(groups):
            for word in range(words):
                value = np.uint64(0)
                begin = group * inputs + word * size
                for bit in range(min(size, inputs - word * size)):
                    above = pixels[pixel, begin + bit] >= shift[begin + bit]
                    value |= np.uint64(above) << np.uint64(bit)
                places[pixel, group, word] = value


@njit(nogil=True, cache=True)
def convolve(
    packed: Any,
    weights: Any,
    shape: Any,
    border: Any,
    inputs: int,
    program: Any,
    vectors: Any,
    residual: Any,
    out: Any,
    begin: int,
    end: int,
) -> None:
    """Compute pixels `begin` to `end` of out (n, height, width, channels), counted through all
    images. `shape`: (rows, columns, down, right, dilation of rows, of columns, groups); `border`:
    (top, left); `inputs`: the channels of a group; `residual` has the shape of `out`, or is
    empty."""
    rows, columns, down, right, apart, beside, groups = shape
    top, left = border
    height, width, channels = out.shape[1:]
    _, high, wide, _, words = packed.shape
    each = channels // groups
    flat, brought = out.reshape(-1, channels), residual.reshape(-1, channels)
    sums = np.empty(each, weights.dtype)
    y = np.empty((1, each), np.float32)
    for pixel in range(begin, end):
        image, inside = divmod(pixel, height * width)
        line, column = divmod(inside, width)
        for group in range(groups):
            sums[:] = 0
            taps = 0
            for row in range(rows):
                at = line * down + row * apart - top
                if at < 0 or at >= high:
                    continue
                for beneath in range(columns):
                    side = column * right + beneath * beside - left
                    if side < 0 or side >= wide:
                        continue
                    taps += 1
                    for word in range(words):
                        value = packed[image, at, side, group, word]
                        tap = weights[group, row * columns + beneath, word]
                        for o in range(each):
                            sums[o] += count_ones(value ^ tap[o])
            for o in range(each):
                y[0, o] = np.float32(taps * inputs - 2 * np.int64(sums[o]))
            finish(y, program, vectors, group * each, each, brought, pixel)
            for o in range(each):
                flat[pixel, group * each + o] = y[0, o]
