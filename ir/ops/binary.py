# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of two operands of one type, with numpy broadcasting.

Integers wrap. Integer division truncates; a division or remainder by zero is 0, and nothing traps.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8
from tilewright.ir.expr import Binary, Expr, Read, Scalar, Symbol, Var, const, index
from tilewright.ir.op import Array, Sample
from tilewright.ir.ops.domain import (
    INTEGERS,
    NUMERIC,
    axes,
    read_broadcast,
    scratch,
)
from tilewright.ir.ops.elementwise import Elementwise, math_call
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import tensor
from tilewright.ir.value_expr import cast, logical_and, select

_N = Symbol("N", 1, 64, 1, 4)
_M = Symbol("M", 1, 64, 1, 4)


class _Binary(Elementwise):
    """An op whose scalar is the :class:`Binary` named in ``expression``."""

    arity = 2
    accepts = NUMERIC
    expression: ClassVar[str] = ""

    def scalar(self, *x: Expr) -> Expr:
        return Binary(self.expression or self.name, x[0], x[1], x[0].dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        op = cls()
        for dtype in (F32, F64, F16, BF16, I32, I8, U8, BOOL):
            if dtype in cls.accepts:
                fill = "bool" if dtype is BOOL else "special"
                yield Sample(op, (tensor(dtype, (6, 9)), tensor(dtype, (6, 9))), fill)
        dtype = next(d for d in (F32, I64, BOOL) if d in cls.accepts)
        fill = "bool" if dtype is BOOL else "normal"
        yield Sample(op, (tensor(dtype, (2, 3, 4)), tensor(dtype, (3, 1))), fill)
        yield Sample(op, (tensor(dtype, ()), tensor(dtype, (_N, 3))), fill)
        yield Sample(op, (tensor(dtype, (_N, 1)), tensor(dtype, (_M,))), fill)


class Add(_Binary):
    """x + y."""

    name = "add"

    def compute(self, *x: Array) -> Array:
        return np.add(*x)


class Sub(_Binary):
    """x - y."""

    name = "sub"

    def compute(self, *x: Array) -> Array:
        return np.subtract(*x)


class Mul(_Binary):
    """x * y."""

    name = "mul"

    def compute(self, *x: Array) -> Array:
        return np.multiply(*x)


class Div(_Binary):
    """x / y; the quotient of integers is rounded to zero."""

    name = "div"

    def compute(self, *x: Array) -> Array:
        return truncating_division(*x) if x[0].dtype.kind in "iu" else np.divide(*x)


class Mod(_Binary):
    """The remainder with the sign of the divisor, as in Python."""

    name = "mod"

    def compute(self, *x: Array) -> Array:
        return np.remainder(*x)


class Fmod(_Binary):
    """The remainder with the sign of the dividend, as in C."""

    name = "fmod"

    def compute(self, *x: Array) -> Array:
        return np.fmod(*x)


class Minimum(_Binary):
    """The smaller operand; NaN if one is NaN."""

    name = "minimum"
    expression = "min"

    def compute(self, *x: Array) -> Array:
        return np.minimum(*x)


class Maximum(_Binary):
    """The larger operand; NaN if one is NaN."""

    name = "maximum"
    expression = "max"

    def compute(self, *x: Array) -> Array:
        return np.maximum(*x)


class And(_Binary):
    """Logical conjunction."""

    name = "and"
    accepts = frozenset((BOOL,))

    def compute(self, *x: Array) -> Array:
        return np.logical_and(*x)


class Or(_Binary):
    """Logical disjunction."""

    name = "or"
    accepts = frozenset((BOOL,))

    def compute(self, *x: Array) -> Array:
        return np.logical_or(*x)


class Xor(_Binary):
    """Logical exclusive or."""

    name = "xor"
    accepts = frozenset((BOOL,))

    def compute(self, *x: Array) -> Array:
        return np.logical_xor(*x)


class BitwiseAnd(_Binary):
    """The bits set in both operands."""

    name = "bitwise_and"
    expression = "and"
    accepts = INTEGERS

    def compute(self, *x: Array) -> Array:
        return np.bitwise_and(*x)


class BitwiseOr(_Binary):
    """The bits set in one operand or both."""

    name = "bitwise_or"
    expression = "or"
    accepts = INTEGERS

    def compute(self, *x: Array) -> Array:
        return np.bitwise_or(*x)


class BitwiseXor(_Binary):
    """The bits set in exactly one operand."""

    name = "bitwise_xor"
    expression = "xor"
    accepts = INTEGERS

    def compute(self, *x: Array) -> Array:
        return np.bitwise_xor(*x)


class _Shift(_Binary):
    accepts = INTEGERS

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        for dtype in (I8, U8, I64):
            yield Sample(
                cls(), (tensor(dtype, (6, 9)), tensor(dtype, (9,))), ("normal", "indices:9")
            )


class ShiftLeft(_Shift):
    """x shifted to the left by y bits; 0 where y is negative or as large as the width."""

    name = "shift_left"

    def scalar(self, *x: Expr) -> Expr:
        shifted = Binary("shl", x[0], x[1], x[0].dtype)
        return select(_within_width(x[1]), shifted, const(0, x[0].dtype))

    def compute(self, *x: Array) -> Array:
        return np.left_shift(*x)


class ShiftRight(_Shift):
    """x shifted to the right by y bits, copies of the sign moving in; all bits where y is out of
    range.
    """

    name = "shift_right"

    def scalar(self, *x: Expr) -> Expr:
        dtype = x[0].dtype
        shifted = Binary("shr", x[0], x[1], dtype)
        all_out: Expr = const(0, dtype)
        if dtype.is_signed:
            all_out = Binary("shr", x[0], const(dtype.bits - 1, dtype), dtype)
        return select(_within_width(x[1]), shifted, all_out)

    def compute(self, *x: Array) -> Array:
        return np.right_shift(*x)


def _within_width(y: Expr) -> Expr:
    below = compare("lt", y, const(y.dtype.bits, y.dtype))
    return logical_and(compare("ge", y, const(0, y.dtype)), below) if y.dtype.is_signed else below


class Pow(_Binary):
    """x to the power y. Integers wrap; a negative exponent of an integer gives the truncated
    quotient.

    The integer power squares and multiplies over the bits of the exponent, as a reduction with two
    accumulators.
    """

    name = "pow"

    def scalar(self, *x: Expr) -> Expr:
        return math_call("pow", *x)

    def compute(self, *x: Array) -> Array:
        if x[0].dtype.kind not in "iu":
            return np.power(*x)
        base, exponent = np.broadcast_arrays(*x)
        power, square = np.ones_like(base), base.copy()
        for bit in range(base.dtype.itemsize * 8):
            power = np.where((exponent >> bit) & 1, power * square, power)
            square = square * square
        negative = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
        return np.where(exponent < 0, negative.astype(base.dtype), power)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (result,) = results
        dtype = result.dtype
        if dtype.is_float:
            return super().stages(operands, results)
        point, bit = axes("i", result.shape), Var("bit", index(dtype.bits))
        x, y = (read_broadcast(b, result.shape, point) for b in operands)
        power, square = Scalar("power", dtype), Scalar("square", dtype)
        zero, one = const(0, dtype), const(1, dtype)
        bits = Binary("shr", y, cast(bit, dtype), dtype)
        is_set = compare("ne", Binary("and", bits, one, dtype), zero)
        buffers = tuple(scratch(n, dtype, result.shape, result) for n in ("powers", "squares"))
        loop = reduce_stage(
            "square_and_multiply",
            point,
            (bit,),
            buffers,
            (power, square),
            (one, x),
            (select(is_set, power * square, power), square * square),
        )
        point = axes("o", result.shape)
        x, y = (read_broadcast(b, result.shape, point) for b in operands)
        value: Expr = Read(buffers[0], point)
        if dtype.is_signed:
            minus_one, odd = const(-1, dtype), Binary("and", y, one, dtype)
            alternating = one - (odd + odd)
            inverse = select(
                compare("eq", x, one), one, select(compare("eq", x, minus_one), alternating, zero)
            )
            value = select(compare("lt", y, zero), inverse, value)
        return loop, map_stage(self.name, point, result, value)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        yield Sample(cls(), (tensor(F32, (6, 9)), tensor(F32, (6, 9))), ("positive", "normal"))
        for dtype in (I32, I64, U8):
            yield Sample(cls(), (tensor(dtype, (6, 9)), tensor(dtype, (9,))), "indices:4")


def truncating_division(x: Array, y: Array) -> Array:
    """The quotient of integers rounded to zero; 0 where the divisor is 0."""
    with np.errstate(all="ignore"):
        quotient = np.floor_divide(x, y)
        inexact = np.multiply(quotient, y) != x
        up = inexact & ((x < 0) != (y < 0)) & (y != 0)
        return np.asarray(quotient + up.astype(quotient.dtype))
