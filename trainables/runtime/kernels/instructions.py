"""Instructions that Numba does not offer by itself, as functions it can call: memory by its
address, numbers that several threads count with, comparisons of many floats at once. Addresses are
signed integers here: Numba makes a float of a signed and an unsigned one."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

BYTE, WORD, NUMBER = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def number(value: int) -> Any:
    """An address or offset as a constant."""
    return ir.Constant(NUMBER, value)


def vector(kind: Any, lanes: int) -> Any:
    """The type of so many of a kind."""
    return ir.VectorType(kind, lanes)


def loaded(builder: Any, address: Any, kind: Any) -> Any:
    """What is at an address, aligned or not."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def stored(builder: Any, value: Any, address: Any) -> None:
    """Write a value to an address, aligned or not."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def repeated(builder: Any, value: Any, lanes: int) -> Any:
    """A vector with the same value in all lanes."""
    kind = vector(value.type, lanes)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(WORD, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(vector(WORD, lanes), [0] * lanes))


def ones(builder: Any, value: Any) -> Any:
    """How many bits are 1 in each lane of a vector."""
    kind = ir.FunctionType(value.type, [value.type])
    name = f"llvm.ctpop.v{value.type.count}i{value.type.element.width}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])


@intrinsic
def pointer(_typing: Any, address: Any) -> Any:
    """An address as `numba.carray` takes it."""
    signature = types.voidptr(types.intp)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], BYTE.as_pointer())

    return signature, generate


def _comparison(lanes: int, result: Any) -> Any:
    kind = vector(WORD, lanes)

    @intrinsic
    def at_least(_typing: Any, x: Any, least: Any) -> Any:
        """Bit i: whether the float x[i] has at least the place least[i] (`place_of`), of arrays at
        two addresses."""
        signature = result(types.intp, types.intp)

        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            bits, places = (loaded(builder, address, kind) for address in args)
            negative = builder.ashr(bits, ir.Constant(kind, [31] * lanes))
            turned = builder.and_(negative, ir.Constant(kind, [2**31 - 1] * lanes))
            above = builder.icmp_signed(">=", builder.xor(bits, turned), places)
            return builder.bitcast(above, ir.IntType(lanes))

        return signature, generate

    return at_least


@njit(nogil=True)
def place_of(bits: Any) -> Any:
    """Where the float with these bits (int32) stands in the ascending order of all floats, as an
    int32: NaNs are beyond the infinities, on the side of their sign, which is where copysign sees
    them."""
    return np.int32(bits ^ ((bits >> 31) & 0x7FFFFFFF))


at_least_8 = _comparison(8, types.uint8)
at_least_16 = _comparison(16, types.uint16)
at_least_32 = _comparison(32, types.uint32)


@intrinsic
def fused(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    signature = types.float32(types.float32, types.float32, types.float32)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return signature, generate


@intrinsic
def counted(_typing: Any, address: Any, added: Any) -> Any:
    """What the number at an address was before this thread, and no other at the same time, added to
    it."""
    signature = types.intp(types.intp, types.intp)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], NUMBER.as_pointer())
        return builder.atomic_rmw("add", place, args[1], "seq_cst")

    return signature, generate


@intrinsic
def seen(_typing: Any, address: Any) -> Any:
    """The number at an address, and with it all that was written before it."""
    signature = types.intp(types.intp)

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], NUMBER.as_pointer())
        return builder.load_atomic(place, "acquire", 8)

    return signature, generate


@intrinsic
def called(_typing: Any, address: Any) -> Any:
    """Call the C function without arguments at an address."""
    signature = types.void(types.intp)

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(WORD, [])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [])
        return context.get_dummy_value()

    return signature, generate
