"""The look-up kernel, for x86 with AVX2. Four signs of inputs are a number below 16, and so are
four signs of weights; a table row of 16 bytes holds for one such input how many signs differ from
each such weight. One byte shuffle looks up 32 outputs. Row 16 of the table is that of zero padding:
2 of 4 differ, which adds exactly nothing to 4 - 2 * 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from bitfront.trainables.runtime.kernels.instructions import (
    BYTE,
    NUMBER,
    WORD,
    at_least_8,
    loaded,
    number,
    place_of,
    pointer,
    stored,
    vector,
)
from bitfront.trainables.runtime.kernels.outputs import finish
from bitfront.trainables.runtime.kernels.steps import Field

# Outputs that one vector holds; steps after which sums of bytes are widened.
LANES = 32
MOST_STEPS = 60
PADDING = 16
_BYTES, _SHORTS, _ROW = vector(BYTE, LANES), vector(ir.IntType(16), LANES), vector(BYTE, 16)
X, SHIFT, PACKED, PLACES = (int(f) for f in (Field.X, Field.SHIFT, Field.PACKED, Field.PLACES))
HEIGHT, WIDTH, IN_CHANNELS = (int(f) for f in (Field.HEIGHT, Field.WIDTH, Field.IN_CHANNELS))
GROUPS, GROUP_BYTES, BLOCKS = (int(f) for f in (Field.GROUPS, Field.GROUP_BYTES, Field.BLOCKS))
IMAGE_BYTES, LINE_BYTES = int(Field.IMAGE_BYTES), int(Field.LINE_BYTES)
BORDER_BYTES, TILE, STEPS = int(Field.BORDER_BYTES), int(Field.TILE), int(Field.STEPS)
TAPS, WEIGHTS, TABLE = int(Field.TAPS), int(Field.WEIGHTS), int(Field.TABLE)
ACROSS, PIXELS, CHANNELS, LENGTH = (
    int(Field.ACROSS),
    int(Field.PIXELS),
    int(Field.CHANNELS),
    int(Field.LENGTH),
)


def table() -> NDArray[np.uint8]:
    """The numbers of signs that differ, by inputs (rows) and weights (columns)."""
    ones = np.array([value.bit_count() for value in range(16)], np.uint8)
    values = np.arange(16)
    found = ones[values[:, None] ^ values]
    return np.concatenate([found, np.full((1, 16), 2, np.uint8)])


def packed_weights(signs: NDArray[np.float32], groups: int, vectors: int) -> NDArray[np.uint8]:
    """The signs (outputs, inputs, rows, columns) as (groups, blocks, steps, lanes): a byte holds
    four inputs of one output, steps go through columns within rows. Outputs are filled up to whole
    blocks of so many vectors with weights of which nobody reads the sums."""
    outputs, inputs, rows, columns = signs.shape
    lanes, each = LANES * vectors, outputs // groups
    blocks = -(-each // lanes)
    bits = (signs > 0).astype(np.uint8).transpose(2, 3, 1, 0)
    bits = bits.reshape(rows * columns * inputs // 4, 4, groups, each)
    four = bits[:, 0] | bits[:, 1] << 1 | bits[:, 2] << 2 | bits[:, 3] << 3
    filled = np.zeros((len(four), groups, blocks * lanes), np.uint8)
    filled[:, :, :each] = four
    filled = filled.reshape(len(four), groups, blocks, lanes)
    return np.ascontiguousarray(filled.transpose(1, 2, 0, 3))


@njit(nogil=True)
def pack(step: Any, begin: int, end: int) -> None:
    """Write sign(x - shift) of image rows `begin` to `end`, counted through all images, four
    channels a byte, inside a border that is left as it is."""
    height, width, channels = step[HEIGHT], step[WIDTH], step[IN_CHANNELS]
    whole, four = channels // 8 * 8, channels // 4
    shift = np.intp(step[SHIFT])
    for number_ in range(begin, end):
        image, row = number_ // height, number_ % height
        place = step[PACKED] + step[BORDER_BYTES]
        place += image * step[IMAGE_BYTES] + row * step[LINE_BYTES]
        packed = carray(pointer(np.intp(place)), (width * four,), np.uint8)
        source = np.intp(step[X] + 4 * number_ * width * channels)
        at = 0
        for _ in range(width):
            for c in range(0, whole, 8):
                bits = at_least_8(source + 4 * c, shift + 4 * c)
                packed[at + c // 4] = bits & 15
                packed[at + c // 4 + 1] = bits >> 4
            if whole < channels:
                values = carray(pointer(np.intp(source + 4 * whole)), (4,), np.int32)
                least = carray(pointer(np.intp(shift + 4 * whole)), (4,), np.int32)
                rest = 0
                for c in range(4):
                    rest |= (place_of(values[c]) >= least[c]) << c
                packed[at + four - 1] = rest
            source += 4 * channels
            at += four


def _widen(builder: Any, sums: Any, added: Any) -> None:
    """Add vectors of bytes to the sums of 16 bits at this address."""
    place = sums
    for row in added:
        for each in row:
            total = builder.add(loaded(builder, place, _SHORTS), builder.zext(each, _SHORTS))
            stored(builder, total, place)
            place = builder.add(place, number(2 * LANES))


@intrinsic
def _add_looked_up(
    _typing: Any,
    sums: Any,
    weights: Any,
    places: Any,
    offset: Any,
    table_: Any,
    steps: Any,
    pixels: Any,
    vectors: Any,
) -> Any:
    """sums[p, o] += sum over k of table[inputs[p][offset + k], weights[k, o]] for all pixels p and
    outputs o of a tile; uint16 sums, everything else bytes. `places`: where the pairs of the pixels
    are; `pixels`, `vectors`: tuples as long as the tile has pixels and vectors of 32 outputs. At
    most 60 steps: sums of so many entries, which are at most 4, fit a byte."""
    height, width = len(pixels), len(vectors)
    signature = types.void(*(types.intp,) * 6, pixels, vectors)

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        sums_, weights_, places_, offset_, table__, steps_, _, _ = args
        bases = [
            builder.add(loaded(builder, builder.add(places_, number(16 * p)), NUMBER), offset_)
            for p in range(height)
        ]
        kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES])
        shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pshuf.b")
        twice = ir.Constant(vector(WORD, LANES), [i % 16 for i in range(LANES)])
        before = builder.block
        loop, after = (builder.append_basic_block(name) for name in ("steps", "widened"))
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(NUMBER)
        k.add_incoming(number(0), before)
        old = [[builder.phi(_BYTES) for _ in range(width)] for _ in range(height)]
        row = builder.add(weights_, builder.mul(k, number(LANES * width)))
        four = [loaded(builder, builder.add(row, number(LANES * v)), _BYTES) for v in range(width)]
        new = []
        for p in range(height):
            value = builder.zext(loaded(builder, builder.add(bases[p], k), BYTE), NUMBER)
            entry = builder.add(table__, builder.shl(value, number(4)))
            entries = loaded(builder, entry, _ROW)
            entries = builder.shuffle_vector(entries, ir.Constant(_ROW, ir.Undefined), twice)
            found = [builder.call(shuffle, [entries, each]) for each in four]
            new.append([builder.add(a, b) for a, b in zip(old[p], found, strict=True)])
        following = builder.add(k, number(1))
        k.add_incoming(following, loop)
        for phis, values in zip(old, new, strict=True):
            for phi, value in zip(phis, values, strict=True):
                phi.add_incoming(ir.Constant(_BYTES, [0] * LANES), before)
                phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps_), loop, after)
        builder.position_at_end(after)
        _widen(builder, sums_, new)
        return context.get_dummy_value()

    return signature, generate


@njit(nogil=True)
def _add(tile: int, to: int, weights: int, places: int, at: int, table_: int, steps: int) -> None:
    """`_add_looked_up` for tiles of this form."""
    if tile == 402:
        _add_looked_up(to, weights, places, at, table_, steps, (0, 0, 0, 0), (0, 0))
    elif tile == 401:
        _add_looked_up(to, weights, places, at, table_, steps, (0, 0, 0, 0), (0,))
    elif tile == 102:
        _add_looked_up(to, weights, places, at, table_, steps, (0,), (0, 0))
    else:
        _add_looked_up(to, weights, places, at, table_, steps, (0,), (0,))


@njit(nogil=True)
def _add_taps(step: Any, sums: int, source: int, places: int, at: int, lanes: int) -> None:
    """Add what differs in all taps of a tile to its sums: runs of taps that follow each other in
    memory, in pieces that fit bytes."""
    length = step[LENGTH]
    runs = step[STEPS] // length
    taps = carray(pointer(np.intp(step[TAPS])), (runs,), np.int64)
    for run in range(runs):
        begin = at + taps[run]
        done = 0
        while done < length:
            steps = np.intp(min(MOST_STEPS, length - done))
            _add(
                step[TILE], sums, source, places, np.intp(begin + done), np.intp(step[TABLE]), steps
            )
            source += steps * lanes
            done += steps


@njit(nogil=True)
def convolve(step: Any, begin: int, end: int) -> None:
    """The units `begin` to `end` of a layer: tiles of pixels, or tiles of one block of outputs,
    counted through the pixels within blocks within groups."""
    tiles = (step[PIXELS] + step[TILE] // 100 - 1) // (step[TILE] // 100)
    if step[ACROSS] == 0:
        _convolve(step, begin, end)
        return
    for block in range(step[GROUPS] * step[BLOCKS]):
        _convolve(step, block * tiles + begin, block * tiles + end)


@njit(nogil=True)
def _convolve(step: Any, begin: int, end: int) -> None:
    """The tiles `begin` to `end`, counted through the pixels within blocks within groups."""
    high, lanes = step[TILE] // 100, LANES * (step[TILE] % 100)
    count, blocks, steps = step[PIXELS], step[BLOCKS], step[STEPS]
    tiles = (count + high - 1) // high
    each = step[CHANNELS] // step[GROUPS]
    differ, values = np.empty(high * lanes, np.uint16), np.empty(high * lanes, np.float32)
    for unit in range(begin, end):
        block, tile = unit // tiles, unit % tiles
        group, number_ = block // blocks, block % blocks
        begun = min(tile * high, count - high)
        differ[:] = 0
        _add_taps(
            step,
            np.intp(differ.ctypes.data),
            np.intp(step[WEIGHTS] + lanes * steps * block),
            np.intp(step[PLACES] + 16 * begun),
            np.intp(step[PACKED] + group * step[GROUP_BYTES]),
            lanes,
        )
        for o in range(len(values)):
            values[o] = np.float32(np.int32(4 * steps) - 2 * np.int32(differ[o]))
        first = group * each + number_ * lanes
        used = min(lanes, each - number_ * lanes)
        finish(step, np.intp(values.ctypes.data), 4 * lanes, begun, high, first, used)
