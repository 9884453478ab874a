# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops of one operand."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, U8, DType
from tilewright.ir.expr import FALSE, Expr, Symbol, Unary, const
from tilewright.ir.op import Array, Sample
from tilewright.ir.ops.domain import FLOATS, INTEGERS
from tilewright.ir.ops.elementwise import Elementwise, math_call
from tilewright.ir.ops.shapes import expect_dtype
from tilewright.ir.simplify import compare
from tilewright.ir.types import tensor

_N = Symbol("N", 1, 64, 1, 5)


class _Unary(Elementwise):
    """An op whose scalar is the :class:`Unary` of the same name."""

    expression: ClassVar[str] = ""

    def scalar(self, *x: Expr) -> Expr:
        return Unary(self.expression or self.name, x[0], x[0].dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        op = cls()
        for dtype in (F32, F64, F16, BF16, I32, I8, U8, BOOL):
            if dtype in cls.accepts:
                yield Sample(op, (tensor(dtype, (3, 5)),), "bool" if dtype is BOOL else "special")
        yield Sample(op, (tensor(next(d for d in (F32, I32, BOOL) if d in cls.accepts), (_N, 3)),))


class Neg(_Unary):
    """Minus x; integers wrap."""

    name = "neg"

    def compute(self, *x: Array) -> Array:
        return np.negative(x[0])


class Abs(_Unary):
    """The absolute value; the least integer is its own."""

    name = "abs"

    def compute(self, *x: Array) -> Array:
        return np.abs(x[0])


class Sign(_Unary):
    """-1, 0 or 1; NaN stays."""

    name = "sign"

    def compute(self, *x: Array) -> Array:
        return np.sign(x[0])


class Ceil(_Unary):
    """The least integer not below x."""

    name = "ceil"
    accepts = FLOATS

    def compute(self, *x: Array) -> Array:
        return np.ceil(x[0])


class Floor(_Unary):
    """The greatest integer not above x."""

    name = "floor"
    accepts = FLOATS

    def compute(self, *x: Array) -> Array:
        return np.floor(x[0])


class Round(_Unary):
    """The nearest integer; halves go to the even one."""

    name = "round"
    accepts = FLOATS

    def compute(self, *x: Array) -> Array:
        return np.rint(x[0])


class Trunc(_Unary):
    """x without its fraction."""

    name = "trunc"
    accepts = FLOATS

    def compute(self, *x: Array) -> Array:
        return np.trunc(x[0])


class Not(_Unary):
    """Logical negation."""

    name = "not"
    accepts = frozenset((BOOL,))

    def compute(self, *x: Array) -> Array:
        return np.logical_not(x[0])


class BitwiseNot(_Unary):
    """All bits flipped."""

    name = "bitwise_not"
    accepts = INTEGERS

    def compute(self, *x: Array) -> Array:
        return np.invert(x[0])


class Isnan(_Unary):
    """True where x is not a number."""

    name = "isnan"
    accepts = FLOATS

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        expect_dtype(self, dtypes, self.accepts)
        return BOOL

    def scalar(self, *x: Expr) -> Expr:
        return Unary("isnan", x[0], BOOL)

    def compute(self, *x: Array) -> Array:
        return np.isnan(x[0])


@dataclass(frozen=True)
class Isinf(_Unary):
    """True where x is infinite, of the signs asked for."""

    name = "isinf"
    accepts = FLOATS
    positive: bool = True
    negative: bool = True

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        expect_dtype(self, dtypes, self.accepts)
        return BOOL

    def scalar(self, *x: Expr) -> Expr:
        if self.positive and self.negative:
            return Unary("isinf", x[0], BOOL)
        if not self.positive and not self.negative:
            return FALSE
        end = math.inf if self.positive else -math.inf
        return compare("eq", x[0], const(end, x[0].dtype))

    def compute(self, *x: Array) -> Array:
        return (np.isposinf(x[0]) & self.positive) | (np.isneginf(x[0]) & self.negative)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for positive in (True, False):
            for negative in (True, False):
                op = cls(positive, negative)
                yield Sample(op, (tensor(F32, (40,)),), "special")
                yield Sample(op, (tensor(F16, (_N, 7)),), "special")


class _Math(_Unary):
    """An op whose scalar is a call of the math function of the same name."""

    accepts = FLOATS
    fill: ClassVar[str] = "normal"

    def scalar(self, *x: Expr) -> Expr:
        return math_call(self.name, x[0])

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        op = cls()
        for dtype in (F32, F64, F16, BF16):
            yield Sample(op, (tensor(dtype, (3, 5)),), cls.fill)
            yield Sample(op, (tensor(dtype, (40,)),), "special")
        yield Sample(op, (tensor(F32, (_N, 3)),), cls.fill)


class Exp(_Math):
    """e to the power x."""

    name = "exp"

    def compute(self, *x: Array) -> Array:
        return np.exp(x[0])


class Exp2(_Math):
    """2 to the power x."""

    name = "exp2"

    def compute(self, *x: Array) -> Array:
        return np.exp2(x[0])


class Expm1(_Math):
    """e to the power x, minus 1, exact for small x."""

    name = "expm1"

    def compute(self, *x: Array) -> Array:
        return np.expm1(x[0])


class Log(_Math):
    """The natural logarithm."""

    name = "log"
    fill = "positive"

    def compute(self, *x: Array) -> Array:
        return np.log(x[0])


class Log2(_Math):
    """The logarithm to base 2."""

    name = "log2"
    fill = "positive"

    def compute(self, *x: Array) -> Array:
        return np.log2(x[0])


class Log1p(_Math):
    """The natural logarithm of 1 + x, exact for small x."""

    name = "log1p"
    fill = "positive"

    def compute(self, *x: Array) -> Array:
        return np.log1p(x[0])


class Sqrt(_Math):
    """The square root."""

    name = "sqrt"
    fill = "positive"

    def compute(self, *x: Array) -> Array:
        return np.sqrt(x[0])


class Rsqrt(_Math):
    """One over the square root."""

    name = "rsqrt"
    fill = "positive"

    def compute(self, *x: Array) -> Array:
        return 1 / np.sqrt(x[0])


class Sin(_Math):
    """The sine of an angle in radians."""

    name = "sin"

    def compute(self, *x: Array) -> Array:
        return np.sin(x[0])


class Cos(_Math):
    """The cosine of an angle in radians."""

    name = "cos"

    def compute(self, *x: Array) -> Array:
        return np.cos(x[0])


class Tan(_Math):
    """The tangent of an angle in radians."""

    name = "tan"

    def compute(self, *x: Array) -> Array:
        return np.tan(x[0])


class Asin(_Math):
    """The angle in [-pi/2, pi/2] whose sine is x."""

    name = "asin"
    fill = "unit"

    def compute(self, *x: Array) -> Array:
        return np.arcsin(x[0])


class Acos(_Math):
    """The angle in [0, pi] whose cosine is x."""

    name = "acos"
    fill = "unit"

    def compute(self, *x: Array) -> Array:
        return np.arccos(x[0])


class Atan(_Math):
    """The angle in [-pi/2, pi/2] whose tangent is x."""

    name = "atan"

    def compute(self, *x: Array) -> Array:
        return np.arctan(x[0])


class Sinh(_Math):
    """The hyperbolic sine."""

    name = "sinh"

    def compute(self, *x: Array) -> Array:
        return np.sinh(x[0])


class Cosh(_Math):
    """The hyperbolic cosine."""

    name = "cosh"

    def compute(self, *x: Array) -> Array:
        return np.cosh(x[0])


class Tanh(_Math):
    """The hyperbolic tangent."""

    name = "tanh"

    def compute(self, *x: Array) -> Array:
        return np.tanh(x[0])


class Asinh(_Math):
    """The inverse of the hyperbolic sine."""

    name = "asinh"

    def compute(self, *x: Array) -> Array:
        return np.arcsinh(x[0])


class Acosh(_Math):
    """The inverse of the hyperbolic cosine; NaN below 1."""

    name = "acosh"
    fill = "positive"

    def compute(self, *x: Array) -> Array:
        return np.arccosh(x[0])


class Atanh(_Math):
    """The inverse of the hyperbolic tangent."""

    name = "atanh"
    fill = "unit"

    def compute(self, *x: Array) -> Array:
        return np.arctanh(x[0])


class Erf(_Math):
    """The error function."""

    name = "erf"

    def compute(self, *x: Array) -> Array:
        erf: Any = np.vectorize(math.erf, otypes=[np.float64])
        return np.asarray(erf(x[0]))


class Sigmoid(_Math):
    """1 / (1 + exp(-x))."""

    name = "sigmoid"

    def compute(self, *x: Array) -> Array:
        e = np.exp(-np.abs(x[0]))
        return np.where(x[0] >= 0, 1 / (1 + e), e / (1 + e))
