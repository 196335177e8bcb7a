"""Vector instructions that Numba does not offer by itself, as functions it can call: the inner loop
of the look-up kernel, the end of a tile, the comparison of eight floats. Addresses are signed
integers here: Numba makes a float of a signed and an unsigned one."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE, _SHORT, _WORD = ir.IntType(8), ir.IntType(16), ir.IntType(64)
_LANES = 32
_BYTES = ir.VectorType(_BYTE, _LANES)
_SHORTS = ir.VectorType(_SHORT, _LANES)
_ROW = ir.VectorType(_BYTE, 16)
_FLOATS = ir.VectorType(ir.FloatType(), 8)


def _number(value: int) -> Any:
    return ir.Constant(_WORD, value)


def _loaded(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _widen(builder: Any, sums: Any, added: Any) -> None:
    """Add vectors of bytes to the sums of 16 bits at this address."""
    place = sums
    for row in added:
        for each in row:
            total = builder.add(_loaded(builder, place, _SHORTS), builder.zext(each, _SHORTS))
            builder.store(total, builder.inttoptr(place, _SHORTS.as_pointer()), align=1)
            place = builder.add(place, _number(2 * _LANES))


@intrinsic
def add_looked_up(
    _typing: Any,
    sums: Any,
    weights: Any,
    inputs: Any,
    offset: Any,
    table: Any,
    steps: Any,
    pixels: Any,
    vectors: Any,
) -> Any:
    """sums[p, o] += sum over k of table[inputs[p][offset + k], weights[k, o]] for all pixels p and
    outputs o of a tile; uint16 sums, everything else bytes. `inputs`: where the addresses of the
    pixels are; `pixels`, `vectors`: tuples as long as the tile has pixels and vectors of 32
    outputs. At most 60 steps: sums of so many entries, which are at most 4, fit a byte."""
    height, width = len(pixels), len(vectors)
    signature = types.void(*(types.intp,) * 6, pixels, vectors)

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        sums_, weights_, inputs_, offset_, table_, steps_, _, _ = args
        bases = [
            builder.add(_loaded(builder, builder.add(inputs_, _number(8 * p)), _WORD), offset_)
            for p in range(height)
        ]
        kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES])
        shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pshuf.b")
        twice = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [i % 16 for i in range(_LANES)])
        before = builder.block
        loop = builder.append_basic_block("steps")
        after = builder.append_basic_block("widened")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_WORD)
        k.add_incoming(_number(0), before)
        old = [[builder.phi(_BYTES) for _ in range(width)] for _ in range(height)]
        row = builder.add(weights_, builder.mul(k, _number(_LANES * width)))
        four = [
            _loaded(builder, builder.add(row, _number(_LANES * v)), _BYTES) for v in range(width)
        ]
        new = []
        for p in range(height):
            value = builder.zext(_loaded(builder, builder.add(bases[p], k), _BYTE), _WORD)
            entry = builder.add(table_, builder.shl(value, _number(4)))
            entries = _loaded(builder, entry, _ROW)
            entries = builder.shuffle_vector(entries, ir.Constant(_ROW, ir.Undefined), twice)
            found = [builder.call(shuffle, [entries, each]) for each in four]
            new.append([builder.add(a, b) for a, b in zip(old[p], found, strict=True)])
        following = builder.add(k, _number(1))
        k.add_incoming(following, loop)
        for phis, values in zip(old, new, strict=True):
            for phi, value in zip(phis, values, strict=True):
                phi.add_incoming(ir.Constant(_BYTES, [0] * _LANES), before)
                phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps_), loop, after)
        builder.position_at_end(after)
        _widen(builder, sums_, new)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def finish_eight(
    _typing: Any,
    sums: Any,
    lanes: Any,
    total: Any,
    vectors: Any,
    between: Any,
    residual: Any,
    out: Any,
    channels: Any,
    pixels: Any,
    shortcut: Any,
) -> Any:
    """out[p] = min(max(fma(z m + c, a, b) + residual[p], low), high) for eight outputs of every
    pixel p of a tile, with z = total - 2 sums[p]. `vectors`: where m is; c, a, b, low and high
    follow, `between` bytes apart. `lanes`: the sums of a pixel; `channels`: the outputs of a pixel
    in `out` and `residual`, which is read if the tuple `shortcut` has two entries."""
    height, added = len(pixels), len(shortcut) == 2
    signature = types.void(*(types.intp,) * 8, pixels, shortcut)

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        sums_, lanes_, total_, vectors_, between_, residual_, out_, channels_, _, _ = args
        wide = ir.VectorType(ir.IntType(32), 8)
        m, c, a, b, low, high = (
            _loaded(builder, builder.add(vectors_, builder.mul(between_, _number(n))), _FLOATS)
            for n in range(6)
        )
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), "llvm.fma.v8f32"
        )
        whole = builder.trunc(total_, ir.IntType(32))
        whole = builder.insert_element(
            ir.Constant(wide, ir.Undefined), whole, ir.Constant(ir.IntType(32), 0)
        )
        whole = builder.shuffle_vector(
            whole, ir.Constant(wide, ir.Undefined), ir.Constant(wide, [0] * 8)
        )
        for p in range(height):
            at = builder.add(sums_, builder.mul(lanes_, _number(2 * p)))
            count = builder.zext(_loaded(builder, at, ir.VectorType(_SHORT, 8)), wide)
            z = builder.sitofp(builder.sub(whole, builder.add(count, count)), _FLOATS)
            y = builder.call(fma, [builder.fadd(builder.fmul(z, m), c), a, b])
            place = builder.mul(channels_, _number(4 * p))
            if added:
                y = builder.fadd(y, _loaded(builder, builder.add(residual_, place), _FLOATS))
            y = builder.select(builder.fcmp_ordered("<", y, low), low, y)
            y = builder.select(builder.fcmp_ordered(">", y, high), high, y)
            kept = builder.inttoptr(builder.add(out_, place), _FLOATS.as_pointer())
            builder.store(y, kept, align=1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def at_least(_typing: Any, x: Any, shift: Any) -> Any:
    """Eight bits, bit i: whether x[i] >= shift[i], of eight floats at two addresses. False for
    NaN."""
    signature = types.uint8(types.intp, types.intp)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        left, right = (_loaded(builder, address, _FLOATS) for address in args)
        return builder.bitcast(builder.fcmp_ordered(">=", left, right), _BYTE)

    return signature, generate


@intrinsic
def fused(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    signature = types.float32(types.float32, types.float32, types.float32)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return signature, generate


@intrinsic
def count_ones(_typing: Any, word: Any) -> Any:
    """The number of bits of an unsigned integer that are 1, as an integer of the same type."""
    signature = word(word)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return signature, generate
