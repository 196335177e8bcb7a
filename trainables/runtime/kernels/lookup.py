"""The look-up kernel, for x86 with AVX2. Four signs of inputs are a number below 16, and so are
four signs of weights; a table row of 16 bytes holds for one such input how many signs differ from
each such weight. One byte shuffle looks up 32 outputs. Row 16 of the table is that of zero padding:
2 of 4 differ, which adds exactly nothing to 4 - 2 * 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitfront.trainables.runtime.kernels.instructions import add_looked_up, at_least, finish_eight
from bitfront.trainables.runtime.kernels.outputs import finish

# Outputs that one vector holds; steps after which sums of bytes are widened.
LANES = 32
STEPS = 60
PADDING = 16
# The vectors of `instructions.finish_eight`.
AT_ONCE = 6


def table() -> NDArray[np.uint8]:
    """The numbers of signs that differ, by inputs (rows) and weights (columns)."""
    ones = np.array([value.bit_count() for value in range(16)], np.uint8)
    values = np.arange(16)
    found = ones[values[:, None] ^ values]
    return np.concatenate([found, np.full((1, 16), 2, np.uint8)])


def packed_weights(signs: NDArray[np.float32], groups: int, lanes: int) -> NDArray[np.uint8]:
    """The signs (outputs, inputs, rows, columns) as (groups, blocks, steps, lanes): a byte holds
    four inputs of one output, steps go through columns within rows. Outputs are filled up to whole
    blocks with weights of which nobody reads the sums."""
    outputs, inputs, rows, columns = signs.shape
    each = outputs // groups
    blocks = -(-each // lanes)
    bits = (signs > 0).astype(np.uint8).transpose(2, 3, 1, 0)
    bits = bits.reshape(rows * columns * inputs // 4, 4, groups, each)
    four = bits[:, 0] | bits[:, 1] << 1 | bits[:, 2] << 2 | bits[:, 3] << 3
    filled = np.zeros((len(four), groups, blocks * lanes), np.uint8)
    filled[:, :, :each] = four
    filled = filled.reshape(len(four), groups, blocks, lanes)
    return np.ascontiguousarray(filled.transpose(1, 2, 0, 3))


@njit(nogil=True, cache=True)
def pack_inputs(x: Any, shift: Any, packed: Any, top: int, left: int) -> None:
    """Write sign(x - shift) of images (n, height, width, channels) into `packed` (n, ..., channels
    / 4), four channels a byte, inside a border that is left as it is."""
    n, height, width, channels = x.shape
    source, shifts = np.intp(x.ctypes.data), np.intp(shift.ctypes.data)
    flat = packed.reshape(-1)
    whole, four = channels // 8 * 8, channels // 4
    for image in range(n):
        for row in range(height):
            place = ((image * packed.shape[1] + row + top) * packed.shape[2] + left) * four
            for column in range(width):
                for c in range(0, whole, 8):
                    bits = at_least(source + 4 * c, shifts + 4 * c)
                    flat[place + c // 4] = bits & 15
                    flat[place + c // 4 + 1] = bits >> 4
                if whole < channels:
                    rest = 0
                    for c in range(4):
                        above = x[image, row, column, whole + c] >= shift[whole + c]
                        rest |= above << c
                    flat[place + four - 1] = rest
                source += 4 * channels
                place += four


@njit(nogil=True, cache=True)
def _add_tile(
    sums: Any, weights: Any, places: int, at: int, table: Any, kernel: Any, pixels: Any, lanes: Any
) -> None:
    """Add what differs in all taps of a tile to its sums. `places`: the address of the offsets of
    its pixels, which are added to `at`."""
    rows, below, runs, length, beside, _ = kernel
    block = LANES * len(lanes)
    source = np.intp(weights.ctypes.data)
    for row in range(rows):
        for run in range(runs):
            begin = at + row * below + run * beside
            done = 0
            while done < length:
                steps = min(STEPS, length - done)
                add_looked_up(
                    sums.ctypes.data,
                    source,
                    places,
                    begin + done,
                    table.ctypes.data,
                    steps,
                    pixels,
                    lanes,
                )
                source += steps * block
                done += steps


@njit(nogil=True, cache=True)
def _store_at_once(
    sums: Any,
    total: int,
    vectors: Any,
    residual: Any,
    out: Any,
    begun: int,
    first: int,
    used: int,
    pixels: Any,
) -> None:
    """Store the outputs of a tile with all operations of `instructions.finish_eight`."""
    block, channels = sums.shape[1], out.shape[1]
    counts, constants = np.intp(sums.ctypes.data), np.intp(vectors.ctypes.data)
    place = 4 * (begun * channels + first)
    to, brings = np.intp(out.ctypes.data) + place, np.intp(residual.ctypes.data) + place
    for o in range(0, used, 8):
        given = (counts + 2 * o, block, total, constants + 4 * (first + o), 4 * channels)
        if residual.size:
            finish_eight(*given, brings + 4 * o, to + 4 * o, channels, pixels, (0, 0))
        else:
            finish_eight(*given, 0, to + 4 * o, channels, pixels, (0,))


@njit(nogil=True, cache=True)
def _store(
    sums: Any,
    total: int,
    program: Any,
    vectors: Any,
    residual: Any,
    out: Any,
    begun: int,
    first: int,
    used: int,
) -> None:
    """Store the outputs of a tile with the operations of a program."""
    y = np.empty(sums.shape, np.float32)
    for p in range(len(sums)):
        counts, values = sums[p], y[p]
        for o in range(len(counts)):
            values[o] = np.float32(total - 2 * np.int64(counts[o]))
    finish(y, program, vectors, first, used, residual, begun)
    for p in range(len(sums)):
        stored, values = out[begun + p][first:], y[p]
        for o in range(used):
            stored[o] = values[o]


@njit(nogil=True, cache=True)
def _convolve(
    packed: Any,
    offsets: Any,
    weights: Any,
    table: Any,
    kernel: Any,
    program: Any,
    vectors: Any,
    residual: Any,
    out: Any,
    begin: int,
    end: int,
    pixels: Any,
    lanes: Any,
) -> None:
    """Compute the outputs of tiles `begin` to `end`: out (n, height, width, channels) at pixels
    counted through all images. `offsets`: where in `packed` each output pixel begins to read;
    `kernel`: rows, bytes from one row to the next, runs of a row, bytes of a run, bytes from one
    run to the next, groups; `residual` has the shape of `out`, or is empty; `pixels`, `lanes`:
    tuples as long as a tile has pixels and vectors of outputs (`instructions.add_looked_up`). Where
    there are AT_ONCE vectors, they are those of `instructions.finish_eight`, and no program."""
    rows, _, runs, length, _, groups = kernel
    channels, high, count = out.shape[3], len(pixels), len(offsets)
    each, block = channels // groups, LANES * len(lanes)
    total = 4 * rows * runs * length
    flat, brought = out.reshape(count, channels), residual.reshape(-1, channels)
    sums = np.empty((high, block), np.uint16)
    places, inputs = np.intp(offsets.ctypes.data), np.intp(packed.ctypes.data)
    for group in range(groups):
        at = inputs + group * (packed.shape[3] // groups)
        for number in range(weights.shape[1]):
            first = group * each + number * block
            used = min(block, each - number * block)
            for tile in range(begin, end):
                begun = min(tile * high, count - high)
                sums[:] = 0
                here = places + 8 * begun
                _add_tile(sums, weights[group, number], here, at, table, kernel, pixels, lanes)
                if len(vectors) == AT_ONCE:
                    _store_at_once(sums, total, vectors, brought, flat, begun, first, used, pixels)
                else:
                    _store(sums, total, program, vectors, brought, flat, begun, first, used)


@njit(nogil=True, cache=True)
def convolve_4_2(*arguments: Any) -> None:
    """`_convolve` with tiles of 4 pixels and 64 outputs."""
    _convolve(*arguments, (0, 0, 0, 0), (0, 0))


@njit(nogil=True, cache=True)
def convolve_4_1(*arguments: Any) -> None:
    """`_convolve` with tiles of 4 pixels and 32 outputs."""
    _convolve(*arguments, (0, 0, 0, 0), (0,))


@njit(nogil=True, cache=True)
def convolve_1_2(*arguments: Any) -> None:
    """`_convolve` with tiles of 1 pixel and 64 outputs."""
    _convolve(*arguments, (0,), (0, 0))


@njit(nogil=True, cache=True)
def convolve_1_1(*arguments: Any) -> None:
    """`_convolve` with tiles of 1 pixel and 32 outputs."""
    _convolve(*arguments, (0,), (0,))
