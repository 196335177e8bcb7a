"""The kernel that counts bits: signs are bits of 32-bit words, with output channels along the lanes
of vectors, and the ones of an exclusive or are the signs that differ. It is written in vectors that
LLVM breaks up where the CPU has shorter ones, so that it runs everywhere; where the CPU counts the
bits of a vector in one instruction (AVX-512 VPOPCNTDQ) it is the fastest. Fits every number of
channels: bits that are left over are 0 in inputs and weights. Zero padding is 0 as well, which
would be -1; `bases` takes away what that adds."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from bitfront.trainables.runtime.kernels.instructions import (
    NUMBER,
    WORD,
    at_least_16,
    at_least_32,
    loaded,
    number,
    ones,
    place_of,
    pointer,
    repeated,
    stored,
    vector,
)
from bitfront.trainables.runtime.kernels.outputs import finish
from bitfront.trainables.runtime.kernels.steps import Field

# Bits of a word, outputs of a vector.
BITS = 32
LANES = 16
_WORDS = vector(WORD, LANES)
_FLOATS = vector(ir.FloatType(), LANES)
X, SHIFT, PACKED, PLACES = (int(f) for f in (Field.X, Field.SHIFT, Field.PACKED, Field.PLACES))
HEIGHT, WIDTH, IN_CHANNELS = (int(f) for f in (Field.HEIGHT, Field.WIDTH, Field.IN_CHANNELS))
GROUPS, GROUP_BYTES, BLOCKS = (int(f) for f in (Field.GROUPS, Field.GROUP_BYTES, Field.BLOCKS))
IMAGE_BYTES, LINE_BYTES = int(Field.IMAGE_BYTES), int(Field.LINE_BYTES)
BORDER_BYTES, TILE, STEPS = int(Field.BORDER_BYTES), int(Field.TILE), int(Field.STEPS)
TAPS, WEIGHTS, BASES = int(Field.TAPS), int(Field.WEIGHTS), int(Field.BASES)
ACROSS, PIXELS, CHANNELS = int(Field.ACROSS), int(Field.PIXELS), int(Field.CHANNELS)


def words_for(inputs: int) -> int:
    """How many words hold so many signs."""
    return -(-inputs // BITS)


def packed_weights(
    signs: NDArray[np.float32], groups: int, vectors: int
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """The signs (outputs, inputs, rows, columns) as words (groups, blocks, taps * words, outputs of
    a block), and the number of +1 in every tap (rows, columns, groups * blocks * outputs of one).
    Blocks have so many vectors; the last one is filled up with weights whose sums nobody reads."""
    outputs, inputs, rows, columns = signs.shape
    lanes, each = LANES * vectors, outputs // groups
    blocks, count = -(-each // lanes), words_for(inputs)
    bits = np.zeros((rows * columns, count * BITS, groups, blocks * lanes), bool)
    ordered = (signs > 0).transpose(2, 3, 1, 0).reshape(rows * columns, inputs, groups, each)
    bits[:, :inputs, :, :each] = ordered
    ones = bits.sum(1, dtype=np.int32).reshape(rows, columns, -1)
    grouped = bits.reshape(rows * columns * count, BITS, groups, blocks, lanes)
    words = np.zeros((len(grouped), groups, blocks, lanes), np.uint32)
    for bit in range(BITS):
        words |= grouped[:, bit].astype(np.uint32) << np.uint32(bit)
    return np.ascontiguousarray(words.transpose(1, 2, 0, 3)), ones


def bases(inputs: int, ones: NDArray[np.int32], inside: NDArray[np.bool_]) -> NDArray[np.int32]:
    """What sums are if no sign differs, for pixels of which these taps (pixels, rows, columns) are
    inside of the image: all others add nothing, but count the +1 of their weights as different."""
    taps = inside.reshape(len(inside), -1)
    out = (~taps).astype(np.int32) @ ones.reshape(taps.shape[1], -1)
    found = inputs * taps.sum(1, dtype=np.int32)[:, None] + 2 * out
    return np.ascontiguousarray(found.astype(np.int32))


@njit(nogil=True)
def pack(step: Any, begin: int, end: int) -> None:
    """Write sign(x - shift) of image rows `begin` to `end`, counted through all images, inside a
    border that is left as it is."""
    height, width, groups = step[HEIGHT], step[WIDTH], step[GROUPS]
    inputs = step[IN_CHANNELS] // groups
    words = step[GROUP_BYTES] // 4
    for number_ in range(begin, end):
        image, row = number_ // height, number_ % height
        place = step[PACKED] + step[BORDER_BYTES]
        place += image * step[IMAGE_BYTES] + row * step[LINE_BYTES]
        packed = carray(pointer(np.intp(place)), (width * groups * words,), np.uint32)
        x = np.intp(step[X] + 4 * number_ * width * step[IN_CHANNELS])
        at = 0
        for _ in range(width):
            shift = np.intp(step[SHIFT])
            for _ in range(groups):
                whole = inputs // BITS
                for word in range(whole):
                    packed[at + word] = at_least_32(x + 128 * word, shift + 128 * word)
                if whole < words:
                    packed[at + whole] = _rest(
                        x + 128 * whole, shift + 128 * whole, inputs - BITS * whole
                    )
                at += words
                x += 4 * inputs
                shift += 4 * inputs


@njit(nogil=True)
def _rest(x: int, shift: int, count: int) -> Any:
    """A word of fewer signs than it has bits."""
    word, begun = np.uint32(0), 0
    if count >= 16:
        word, begun = np.uint32(at_least_16(x, shift)), 16
    values = carray(pointer(np.intp(x)), (count,), np.int32)
    least = carray(pointer(np.intp(shift)), (count,), np.int32)
    for bit in range(begun, count):
        if place_of(values[bit]) >= least[bit]:
            word |= np.uint32(1) << np.uint32(bit)
    return word


def _store(builder: Any, sums: Any, bases_: Any, differing: Any) -> None:
    """Store bases - 2 differing as floats, vector after vector, pixel after pixel."""
    place = sums
    for begin, counts in zip(bases_, differing, strict=True):
        for v, count in enumerate(counts):
            base = loaded(builder, builder.add(begin, number(4 * LANES * v)), _WORDS)
            total = builder.sub(base, builder.add(count, count))
            stored(builder, builder.sitofp(total, _FLOATS), place)
            place = builder.add(place, number(4 * LANES))


@intrinsic
def _sum_tile(
    _typing: Any,
    sums: Any,
    weights: Any,
    places: Any,
    packed: Any,
    bases_: Any,
    taps: Any,
    steps: Any,
    pixels: Any,
    vectors: Any,
) -> Any:
    """sums[p, o] = bases[p, o] - 2 sum over k of ones(packed[p, taps[k]] ^ weights[k, o]), floats,
    for all pixels p and outputs o of a tile. `places`: where the pairs of its pixels are; `pixels`,
    `vectors`: tuples as long as the tile has pixels and vectors of 16 outputs."""
    high, wide = len(pixels), len(vectors)
    signature = types.void(*(types.intp,) * 7, pixels, vectors)
    row = 4 * LANES * wide

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        sums_, weights_, places_, packed_, from_, taps_, steps_, _, _ = args
        pairs = [
            [
                loaded(builder, builder.add(places_, number(16 * p + part)), NUMBER)
                for part in (0, 8)
            ]
            for p in range(high)
        ]
        inputs = [builder.add(packed_, place) for place, _ in pairs]
        before = builder.block
        loop, after = (builder.append_basic_block(name) for name in ("taps", "summed"))
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(NUMBER)
        k.add_incoming(number(0), before)
        old = [[builder.phi(_WORDS) for _ in range(wide)] for _ in range(high)]
        tap = loaded(builder, builder.add(taps_, builder.shl(k, number(3))), NUMBER)
        at = builder.add(weights_, builder.mul(k, number(row)))
        signs = [
            loaded(builder, builder.add(at, number(4 * LANES * v)), _WORDS) for v in range(wide)
        ]
        new = []
        for p in range(high):
            word = loaded(builder, builder.add(inputs[p], tap), WORD)
            word = repeated(builder, word, LANES)
            found = [ones(builder, builder.xor(word, each)) for each in signs]
            new.append([builder.add(a, b) for a, b in zip(old[p], found, strict=True)])
        following = builder.add(k, number(1))
        k.add_incoming(following, loop)
        for phis, values in zip(old, new, strict=True):
            for phi, value in zip(phis, values, strict=True):
                phi.add_incoming(ir.Constant(_WORDS, [0] * LANES), before)
                phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps_), loop, after)
        builder.position_at_end(after)
        _store(builder, sums_, [builder.add(from_, place) for _, place in pairs], new)
        return context.get_dummy_value()

    return signature, generate


@njit(nogil=True)
def _sum(
    tile: int, to: int, weights: int, places: int, packed: int, from_: int, taps: int, steps: int
) -> None:
    """`_sum_tile` for tiles of this form."""
    if tile == 404:
        four = (0, 0, 0, 0)
        _sum_tile(to, weights, places, packed, from_, taps, steps, four, four)
    elif tile == 402:
        _sum_tile(to, weights, places, packed, from_, taps, steps, (0, 0, 0, 0), (0, 0))
    elif tile == 401:
        _sum_tile(to, weights, places, packed, from_, taps, steps, (0, 0, 0, 0), (0,))
    elif tile == 104:
        _sum_tile(to, weights, places, packed, from_, taps, steps, (0,), (0, 0, 0, 0))
    elif tile == 102:
        _sum_tile(to, weights, places, packed, from_, taps, steps, (0,), (0, 0))
    else:
        _sum_tile(to, weights, places, packed, from_, taps, steps, (0,), (0,))


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
    scratch = np.empty(high * lanes, np.float32)
    sums = np.intp(scratch.ctypes.data)
    for unit in range(begin, end):
        block, tile = unit // tiles, unit % tiles
        group, number_ = block // blocks, block % blocks
        begun = min(tile * high, count - high)
        _sum(
            step[TILE],
            sums,
            np.intp(step[WEIGHTS] + 4 * lanes * steps * block),
            np.intp(step[PLACES] + 16 * begun),
            np.intp(step[PACKED] + group * step[GROUP_BYTES]),
            np.intp(step[BASES] + 4 * lanes * block),
            np.intp(step[TAPS]),
            np.intp(steps),
        )
        first = group * each + number_ * lanes
        used = min(lanes, each - number_ * lanes)
        finish(step, sums, 4 * lanes, begun, high, first, used)
